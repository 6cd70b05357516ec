#!/bin/bash
# init of a virtual Spark: keeps sshd and dockerd running, reaps orphans (bash does, as any process's parent), and on
# SIGTERM stops the containers, then everything, in at most about 25 seconds.
set -u
declare -A pid

start() {
  case $1 in
    sshd) exec /usr/sbin/sshd -D -e ;;
    dockerd) exec dockerd ;;
  esac >>"/var/log/$1.log" 2>&1 </dev/null &
  pid[$1]=$!
}

# ended PID SECONDS: waits until the process is gone; false when it outlives the time.
ended() {
  for ((tick = $2 * 10; tick > 0; tick--)); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}

stop() {
  trap '' TERM
  kill -TERM "${pid[dockerd]}" 2>/dev/null
  ended "${pid[dockerd]}" 20
  kill -TERM -1
  ended "${pid[sshd]}" 2
  exit 0 # the kernel kills what is left
}
trap stop TERM

mkdir -p /run/sshd /run/lock
start sshd
start dockerd
while :; do
  wait -n
  for service in sshd dockerd; do
    kill -0 "${pid[$service]}" 2>/dev/null && continue
    sleep 1 # as systemd's RestartSec
    start "$service"
  done
done
