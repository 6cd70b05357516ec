#!/usr/bin/env bash
# Lets another node's fabric key run RECEIVER on this node, and nothing else: receive-image.sh or receive-model.sh.
# authorize-fabric-key.sh add FOLDER RECEIVER FROM_ADDRESS PUBLIC_KEY, or authorize-fabric-key.sh remove FOLDER RECEIVER
set -euo pipefail
export LC_ALL=C
action=$1 folder=$2 from=${4:-} key=${5:-}
receiver=$folder/$3

case $action in
  add | remove) ;;
  *) echo "add or remove, not $action" >&2 && exit 2 ;;
esac
if [[ $action = add && ! $key =~ ^ssh-ed25519\ [A-Za-z0-9+/=]{40,}(\ .*)?$ ]]; then
  echo "not a public key (ssh-ed25519 BODY): '$key'" >&2
  exit 2
fi
read -r type body _ <<<"$key"
# What it runs makes a line ours, not the key or where it comes from: a renewed key, and another sender, take the place of the old.
before='restrict,from="'
after="\",command=\"bash $receiver\" "
entry="$before$from$after$type $body dgx-spark-serving"

(umask 077 && mkdir -p "$HOME/.ssh")
# One run at a time, or the last one to move its list into place would drop the others' entries.
exec 9<"$HOME/.ssh"
flock 9
# A link stays one: its target is rewritten.
if ! file=$(readlink -f "$HOME/.ssh/authorized_keys"); then
  echo "$HOME/.ssh/authorized_keys is a link that leads nowhere" >&2
  exit 1
fi
if [ ! -e "$file" ]; then
  (umask 077 && : >"$file")
fi

# lines OURS: the lines that run it (1), or all the others (0). By the environment, because awk would expand backslashes in -v.
lines() {
  before=$before after=$after awk -v ours="$1" \
    '(index($0, ENVIRON["before"]) == 1 && index($0, ENVIRON["after"]) > 0) == ours' "$file"
}
present=$(lines 1)
if [ "$action" = add ]; then wanted=$entry; else wanted=''; fi

changed=false
source=$(dirname "$0")/$3
if [ "$action" = add ] && ! cmp --silent "$source" "$receiver"; then
  # Not the file that a copy may be reading.
  cp "$source" "$receiver.new"
  mv "$receiver.new" "$receiver"
  changed=true
fi
if [ "$present" != "$wanted" ]; then
  # The list is written whole, then moved into place: a person's own keys are in it.
  new=$(mktemp "$file.XXXXXX")
  trap 'rm -f "$new"' EXIT
  # awk ends a last line that has no newline: the entry must not be swallowed by it.
  lines 0 >"$new"
  if [ -n "$wanted" ]; then printf '%s\n' "$wanted" >>"$new"; fi
  chmod --reference="$file" "$new"
  mv "$new" "$file"
  changed=true
fi
printf '{"changed": %s}\n' "$changed"
