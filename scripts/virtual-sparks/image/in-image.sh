#!/bin/bash
# Usage: in-image.sh ROOT COMMAND...
# Runs the command inside the image's tree, without network and in a mount namespace of its own.
set -euo pipefail
if [ "$1" != --inside ]; then
  exec unshare --mount --net -- "$0" --inside "$@"
fi
root=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
environment=(PATH=/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8)
exec env -i "${environment[@]}" chroot "$root" "$@"
