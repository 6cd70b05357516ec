#!/usr/bin/env bash
# The deployment's folder on this node: workspace.sh make|remove FOLDER. It is made before any script runs.
set -euo pipefail
action=$1 folder=$2

if [ "$action" = remove ]; then rm -rf -- "$folder"; fi
printf '{"changed": %s}\n' "$([ "$action" = remove ] && echo true || echo false)"
