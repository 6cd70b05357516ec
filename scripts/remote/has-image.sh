#!/usr/bin/env bash
# Says which image a tag is here: has-image.sh TAG
set -euo pipefail
tag=$1

if ! id=$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null); then
  echo "image $tag is not on this node" >&2
  exit 1
fi
printf '{"changed": false, "id": "%s"}\n' "$id"
