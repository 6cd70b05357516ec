#!/usr/bin/env bash
# The deployment's folder on this node: workspace.sh make FOLDER, or workspace.sh remove FOLDER DEPLOYMENT keep|remove
# It is made before any script runs, and stays for as long as another machine works in it, whose home it is too. With it goes
# all that is left of DEPLOYMENT: what a killed run was making is in no stack's state. The last word is about its images.
set -euo pipefail
action=$1 folder=$2 deployment=${3:-} images=${4:-}
here=$(dirname "$0")

changed=false
if [ "$action" = remove ]; then
  containers=$(docker ps --all --quiet --filter "label=dgx-spark-serving.deployment=$deployment")
  for container in $containers; do
    docker rm --force "$container" >&2
  done
  # It would go on for nobody.
  python3 -B "$here/end_pull.py" "$folder"
  session=dgx-spark-$deployment-session
  if docker volume inspect "$session" >/dev/null 2>&1; then
    docker volume rm "$session" >&2
  fi
  [ "$images" = keep ] || bash "$here/remove-image.sh" "$deployment" >/dev/null
  for receiver in receive-image.sh receive-model.sh; do
    bash "$here/authorize-fabric-key.sh" remove "$folder" "$receiver" >/dev/null
  done
  if [ -z "$(ls -A -- "$folder/nodes")" ]; then
    rm -rf -- "$folder"
    changed=true
  fi
fi
printf '{"changed": %s}\n' "$changed"
