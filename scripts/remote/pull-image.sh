#!/usr/bin/env bash
# Pulls an image by digest and gives it our tag: pull-image.sh REFERENCE TAG
set -euo pipefail
reference=$1 tag=$2

changed=false
if ! docker image inspect "$reference" >/dev/null 2>&1; then
  echo "pulling $reference" >&2
  docker pull "$reference" >&2
  changed=true
fi

id=$(docker image inspect --format '{{.Id}}' "$reference")
image_architecture=$(docker image inspect --format '{{.Architecture}}' "$reference")
case $(uname -m) in
  aarch64) architecture=arm64 ;;
  x86_64) architecture=amd64 ;;
  *) architecture=$(uname -m) ;;
esac
if [ "$image_architecture" != "$architecture" ]; then
  echo "the image is for $image_architecture, this machine is $architecture: choose an image that is built for it" >&2
  exit 1
fi

if [ "$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null)" != "$id" ]; then
  docker tag "$reference" "$tag"
  changed=true
fi
printf '{"changed": %s, "id": "%s"}\n' "$changed" "$id"
