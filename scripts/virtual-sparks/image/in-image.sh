#!/bin/bash
# Usage: in-image.sh ROOT COMMAND...
# Runs the command inside the image's tree, in namespaces of its own: no network, and no mount outlives it.
set -euo pipefail
if [ "${1-}" != --inside ]; then
  exec unshare --mount --net --pid --fork --kill-child -- "$0" --inside "$@"
fi
shift
root=$1
shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
exec env -i PATH=/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$root" "$@"
