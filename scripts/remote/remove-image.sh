#!/usr/bin/env bash
# Takes our tag off an image: remove-image.sh TAG. Without another name the image goes too.
set -euo pipefail
tag=$1

changed=false
if docker image inspect "$tag" >/dev/null 2>&1; then
  docker image rm "$tag" >&2
  changed=true
fi
printf '{"changed": %s}\n' "$changed"
