#!/usr/bin/env bash
# One node of workers.sbatch: a sandbox host with its init and run workers, until the job ends.
set -euo pipefail
# Clusters bring Apptainer as a module, if it is not on PATH.
command -v apptainer >/dev/null || command -v singularity >/dev/null || module load apptainer

# Local, and short: sockets lie in it. Locked while somebody uses it; a node that was killed leaves its folder behind.
local=${SLURM_TMPDIR:-/tmp}
for left in "$local/r-$UID-"*/; do
  if [ -O "$left" ]; then flock --nonblock "${left}lock" rm -rf "$left" || true; fi
done
ROLLOUTS_STATE_FOLDER=$(mktemp -d "$local/r-$UID-XXXXXX")
exec 9>"$ROLLOUTS_STATE_FOLDER/lock"
flock 9
# Not the machine's name: one may be several nodes, and have nodes of several jobs.
ROLLOUTS_SANDBOX_HOST=${SLURMD_NODENAME:-$(hostname --short)}-${SLURM_JOB_ID:-0}
export ROLLOUTS_STATE_FOLDER ROLLOUTS_SANDBOX_HOST
export ROLLOUTS_STORE_FOLDER=$ROLLOUTS_SHARED/store ROLLOUTS_SANDBOX_BACKEND=apptainer
# No function: in the background that is a shell of its own, which a signal ends before it reaches the program.
rollouts=(node "$ROLLOUTS_CHECKOUT/bin/rollouts.mjs")

# What workers and the host take to stop.
STOP_SECONDS=30

address_now() { cat "$ROLLOUTS_SHARED/address" 2>/dev/null || true; }
answers() { timeout 5 bash -c "exec 3<>'/dev/tcp/${1%:*}/${1##*:}'" 2>/dev/null; }
# The server may not be up yet, or the address may be of the node where it was before.
start() {
  until ROLLOUTS_TEMPORAL_ADDRESS=$(address_now) && [ -n "$ROLLOUTS_TEMPORAL_ADDRESS" ] &&
    answers "$ROLLOUTS_TEMPORAL_ADDRESS"; do rest 2; done
  export ROLLOUTS_TEMPORAL_ADDRESS
  "${rollouts[@]}" host &
  host=$!
  "${rollouts[@]}" worker --roles init,run &
  worker=$!
}
stop() {
  [ -n "${host:-}" ] || return 0
  kill "$host" "$worker" 2>/dev/null || true
  wait "$worker" || true
  wait "$host" || true
}
# A signal ends it at once.
rest() {
  sleep "$1" &
  wait $! || true
  if [ -n "$told" ]; then leave 0 8; fi
}
# What runs may end for so many seconds, then it goes on elsewhere for so many; what is left begins again elsewhere.
leave() {
  trap '' TERM
  if [ -n "${host:-}" ]; then
    timeout $(($1 + $2 + 5)) "${rollouts[@]}" host drain --within "$1" --moving "$2" || true
  fi
  exit 0
}
leave_before() {
  local half=$((($1 - $(date +%s) - STOP_SECONDS) / 2))
  leave $((half > 0 ? half : 0)) $((half > 0 ? half : 0))
}
# shellcheck disable=SC2329 # a trap calls it
finish() {
  trap '' TERM EXIT
  stop
  rm -rf "$ROLLOUTS_STATE_FOLDER"
}

leaving=$ROLLOUTS_SHARED/leave-${SLURM_JOB_ID:-0}
told=
trap 'told=yes' TERM # within Slurm's KillWait, 30 seconds if the site has not changed it
trap finish EXIT
start
while kill -0 "$host" 2>/dev/null && kill -0 "$worker" 2>/dev/null; do
  if [ -s "$leaving" ]; then leave_before "$(cat "$leaving")"; fi
  if [ "$(address_now)" != "$ROLLOUTS_TEMPORAL_ADDRESS" ]; then
    stop
    start
  fi
  rest 5
done
echo "the host or the worker of $ROLLOUTS_SANDBOX_HOST ended by itself" >&2
exit 1
