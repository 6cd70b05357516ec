#!/usr/bin/env bash
# The one command that the key of the node before may run here. What is asked for comes in SSH_ORIGINAL_COMMAND:
#   model                     receives a model, see receive_model.py
#   rsync --server --daemon . rsync's side of it, which may write in the model's folder and nowhere else
set -euo pipefail
# A new file's permissions are by this; those of folders that are there are left alone: they may be somebody else's.
umask 022
keep=$(cd "$(dirname "$0")" && pwd)

case ${SSH_ORIGINAL_COMMAND:-} in
  model) exec python3 -B "$keep/receiver/receive_model.py" "$keep" ;;
  "rsync --server --daemon .") exec rsync --server --daemon --config="$keep/receiver/rsyncd.conf" . ;;
  *)
    echo "this key may only copy a model" >&2
    exit 1
    ;;
esac
