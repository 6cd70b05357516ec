#!/bin/sh
# Runs the engine inside its container: keep-running.sh ARGV... Docker starts the container again when this fails, and leaves
# it when this succeeds. So the engine's end is always a failure, until it has ended too often in a short time.
# Each start loads the whole model: more than five within two hours (a load takes up to 15 minutes) help nobody.
limit=5
window=7200
# In the container's own layer: there after a restart, gone with the container.
starts=/var/tmp/dgx-spark-serving-starts

now=$(date +%s)
{
  cat "$starts" 2>/dev/null
  echo "$now"
} | awk -v since="$((now - window))" -v now="$now" '$1 > since && $1 <= now' >"$starts.new"
mv "$starts.new" "$starts"
if [ "$(wc -l <"$starts")" -gt "$limit" ]; then
  rm -f "$starts"
  echo "dgx-spark-serving: the engine ended $limit times within $((window / 60)) minutes and is not started again." \
    "Why is above; after mending it: pulumi up --refresh" >&2
  exit 0
fi

# A cache that was cut off while it was written would end every start: only the first one relies on it.
if [ "$(wc -l <"$starts")" -gt 1 ] && [ -n "${VLLM_CACHE_ROOT:-}" ]; then
  rm -rf "$VLLM_CACHE_ROOT"
fi

"$@" &
engine=$!
trap 'kill -TERM "$engine" 2>/dev/null' TERM INT
wait "$engine"
code=$?
# A signal ends `wait`, not yet the engine.
while kill -0 "$engine" 2>/dev/null; do
  wait "$engine"
  code=$?
done
# vLLM ends with code 0 when it is told to stop, and when a rank is lost.
[ "$code" -ne 0 ] || code=1
exit "$code"
