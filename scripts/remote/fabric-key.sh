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
printf '{"changed": %s, "publicKey": "%s"}\n' "$changed" "$(ssh-keygen -y -f "$file")"
