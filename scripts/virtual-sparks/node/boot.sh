#!/bin/bash
# Usage: boot.sh NAME DIRECTORY
# The first process of a virtual Spark, in network, mount, PID, UTS and IPC namespaces of its own: makes its file system
# visible, gives up this machine's, and becomes its init.
#
# DIRECTORY/root is the node's disk, and DIRECTORY/docker.img that of its dockerd. Of this machine it sees nothing but
# /usr without /usr/local, read-only.
set -euo pipefail
name=$1 directory=$2
root=$directory/root

hostname "$name"
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount --bind "$directory/usr-local" "$root/usr/local"
mount -o loop,noatime "$directory/docker.img" "$root/var/lib/docker"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys" # a new one: it shows this node's network devices
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"

mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
mount -t devpts -o newinstance,mode=620,gid=5,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
device() { mknod -m 666 "$root/dev/$1" c "$2" "$3"; }
device null 1 3
device zero 1 5
device full 1 7
device random 1 8
device urandom 1 9
device tty 5 0
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${stream%:*}" "$root/dev/${stream#*:}"; done

# Not chroot: `docker exec` would see this machine's root.
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /bin/bash /init
