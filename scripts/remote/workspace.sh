#!/usr/bin/env bash
# The deployment's folder on this node: workspace.sh make FOLDER, or workspace.sh remove FOLDER [DEPLOYMENT]
# It is made before any script runs, and stays for as long as another machine works in it, whose home it is too. The images
# of DEPLOYMENT go with it.
set -euo pipefail
action=$1 folder=$2 deployment=${3:-}

changed=false
if [ "$action" = remove ]; then
  [ -z "$deployment" ] || bash "$(dirname "$0")/remove-image.sh" "$deployment" >/dev/null
  if [ -z "$(ls -A -- "$folder/nodes")" ]; then
    rm -rf -- "$folder"
    changed=true
  fi
fi
printf '{"changed": %s}\n' "$changed"
