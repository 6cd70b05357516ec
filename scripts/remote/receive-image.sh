#!/usr/bin/env bash
# The one command that the head's fabric key may run here. What is asked for comes in SSH_ORIGINAL_COMMAND:
#   layers TAG   prints the layers of an image, or "absent"
#   load         reads an image from stdin
set -euo pipefail

case ${SSH_ORIGINAL_COMMAND:-} in
  load) exec docker load --quiet ;;
  "layers "*) docker image inspect --format '{{json .RootFS.Layers}}' -- "${SSH_ORIGINAL_COMMAND#layers }" 2>/dev/null || echo absent ;;
  *)
    echo "this key may only copy images" >&2
    exit 1
    ;;
esac
