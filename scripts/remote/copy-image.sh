#!/usr/bin/env bash
# Streams an image from the head to a worker over the fabric, and compares the two:
# copy-image.sh TAG WORKER KEY_FILE USER ADDRESS PORT HOST_KEY
set -euo pipefail
tag=$1 worker=$2 key=$3 user=$4 address=$5 port=$6 host_key=$7

on_worker() {
  ssh -i "$key" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 \
    -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null \
    -o "KnownHostsCommand=/bin/echo %H $host_key" -o "HostKeyAlgorithms=${host_key_algorithms}" \
    -p "$port" -l "$user" -- "$address" "$1"
}
case ${host_key%% *} in
  ssh-rsa) host_key_algorithms=rsa-sha2-512,rsa-sha2-256 ;;
  *) host_key_algorithms=${host_key%% *} ;;
esac

layers=$(docker image inspect --format '{{json .RootFS.Layers}}' "$tag")
changed=false
if ! there=$(on_worker "layers $tag"); then
  echo "can't reach $worker from the head over the fabric: $user@$address:$port. If a key or file of ours was changed by" \
    "hand on either: pulumi up --replace '**image-*'" >&2
  exit 1
fi
if [ "$there" != "$layers" ]; then
  size=$(docker image inspect --format '{{.Size}}' "$tag")
  echo "copying the image ($((size / 1000000)) MB) to $worker over the fabric" >&2
  docker save "$tag" | on_worker load >&2
  changed=true
  if [ "$(on_worker "layers $tag")" != "$layers" ]; then
    echo "the image on $worker is not the one that was sent: run this again, and look at the disk of $worker" >&2
    exit 1
  fi
  echo "copied in $SECONDS s" >&2
fi
printf '{"changed": %s}\n' "$changed"
