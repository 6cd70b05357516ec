#!/usr/bin/env bash
# Lets the head's fabric key run one command on this node, and nothing else:
# authorize-fabric-key.sh add|remove FROM_ADDRESS COMMAND PUBLIC_KEY
set -euo pipefail
action=$1 from=$2 command=$3 key=$4
file=$HOME/.ssh/authorized_keys
read -r type body _ <<<"$key"
entry="restrict,from=\"$from\",command=\"$command\" $type $body dgx-spark-serving"

# The list is written whole, then moved into place: a person's own keys are in it.
rewrite() {
  local new
  new=$(mktemp "$file.XXXXXX")
  trap 'rm -f "$new"' EXIT
  { grep -vF " $body" "$file" || true; } >"$new"
  if [ "$action" = add ]; then
    # A list that does not end in a newline would swallow the entry.
    [ ! -s "$new" ] || [ -z "$(tail -c 1 "$new")" ] || echo >>"$new"
    printf '%s\n' "$entry" >>"$new"
  fi
  chmod --reference="$file" "$new"
  mv "$new" "$file"
}

if [ ! -e "$file" ]; then
  mkdir -p -m 700 "$HOME/.ssh"
  (umask 077 && : >"$file")
fi
changed=false
if [ "$action" = add ]; then
  grep -qxF "$entry" "$file" || { rewrite && changed=true; }
elif grep -qF " $body" "$file"; then
  rewrite
  changed=true
fi
printf '{"changed": %s}\n' "$changed"
