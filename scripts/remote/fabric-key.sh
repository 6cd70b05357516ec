#!/usr/bin/env bash
# Makes the head's own key for copies over the fabric: fabric-key.sh FILE. It never leaves this node.
set -euo pipefail
file=$1

changed=false
if [ ! -s "$file" ]; then
  # A name of its own until it is whole.
  rm -f "$file.new" "$file.new.pub"
  ssh-keygen -q -t ed25519 -N '' -C dgx-spark-serving -f "$file.new"
  mv "$file.new.pub" "$file.pub"
  mv "$file.new" "$file"
  changed=true
fi
# On a line of its own: a failure inside an argument of printf would be hidden.
if ! public=$(ssh-keygen -y -P '' -f "$file"); then
  echo "the fabric key $file can't be read: remove it and run again, then a new one is made" >&2
  exit 1
fi
printf '{"changed": %s, "publicKey": "%s"}\n' "$changed" "$public"
