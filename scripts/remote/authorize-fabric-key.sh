#!/usr/bin/env bash
# Lets the head's fabric key run one command on this node, and nothing else:
# authorize-fabric-key.sh add|remove FROM_ADDRESS COMMAND PUBLIC_KEY
set -euo pipefail
action=$1 from=$2 command=$3 key=$4
file=$HOME/.ssh/authorized_keys
read -r type body _ <<<"$key"
entry="restrict,from=\"$from\",command=\"$command\" $type $body dgx-spark-serving"

if [ ! -e "$file" ]; then
  (umask 077 && mkdir -p "$HOME/.ssh" && : >"$file")
fi
case $action in
  add) if grep -qxF "$entry" "$file"; then changed=false; else changed=true; fi ;;
  remove) if grep -qF " $body" "$file"; then changed=true; else changed=false; fi ;;
  *) echo "add or remove, not $action" >&2 && exit 2 ;;
esac

if [ "$changed" = true ]; then
  # The list is written whole, then moved into place: a person's own keys are in it.
  new=$(mktemp "$file.XXXXXX")
  trap 'rm -f "$new"' EXIT
  # awk ends a last line that has no newline: the entry must not be swallowed by it.
  awk -v body=" $body" 'index($0, body) == 0' "$file" >"$new"
  if [ "$action" = add ]; then printf '%s\n' "$entry" >>"$new"; fi
  chmod --reference="$file" "$new"
  mv "$new" "$file"
fi
printf '{"changed": %s}\n' "$changed"
