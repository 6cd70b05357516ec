#!/usr/bin/env bash
# Before a container is made: removes what an interrupted run left under its name, if it is ours:
# remove-leftover.sh CONTAINER DEPLOYMENT
set -euo pipefail
container=$1 deployment=$2

changed=false
if owner=$(docker inspect --format '{{index .Config.Labels "dgx-spark-serving.deployment"}}' "$container" 2>/dev/null); then
  if [ "$owner" != "$deployment" ]; then
    echo "container $container is there already and is not of deployment $deployment: rename or remove it (docker rm -f $container)" >&2
    exit 1
  fi
  docker rm --force "$container" >&2
  changed=true
fi
printf '{"changed": %s}\n' "$changed"
