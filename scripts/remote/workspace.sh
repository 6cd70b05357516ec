#!/usr/bin/env bash
# The deployment's folder on this node: workspace.sh make|remove FOLDER. It is made before any script runs, and stays for as
# long as another machine works in it, whose home it is too.
set -euo pipefail
action=$1 folder=$2

changed=false
if [ "$action" = remove ] && [ -z "$(ls -A -- "$folder/nodes")" ]; then
  rm -rf -- "$folder"
  changed=true
fi
printf '{"changed": %s}\n' "$changed"
