#!/usr/bin/env bash
# Takes a deployment's tags off its images, also those of former ones: remove-image.sh DEPLOYMENT. An image without
# another name goes too.
set -euo pipefail
deployment=$1

# On a line of its own: a failure inside a substitution of the loop would be hidden.
tags=$(docker images --format '{{.Repository}}:{{.Tag}}' dgx-spark-serving)
changed=false
while read -r tag; do
  # Not those of a deployment whose name begins with this one's.
  if [[ $tag =~ -[0-9a-f]{12}$ && ${tag%-*} = "dgx-spark-serving:$deployment" ]]; then
    docker image rm "$tag" >&2
    changed=true
  fi
done <<<"$tags"
printf '{"changed": %s}\n' "$changed"
