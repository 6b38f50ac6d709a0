#!/usr/bin/env bash
# One node of workers.sbatch: a sandbox host with its init and run workers.
set -euo pipefail
# Clusters bring Apptainer as a module, if it is not on PATH.
command -v apptainer >/dev/null || module load apptainer
until [ -s "$ROLLOUTS_SHARED/address" ]; do sleep 2; done
ROLLOUTS_TEMPORAL_ADDRESS=$(cat "$ROLLOUTS_SHARED/address")
# Local, and short: sockets lie in it.
ROLLOUTS_STATE_FOLDER=$(mktemp -d "${SLURM_TMPDIR:-/tmp}/r-XXXXXX")
ROLLOUTS_SANDBOX_HOST=$(hostname --short)-${SLURM_JOB_ID:-0}
export ROLLOUTS_TEMPORAL_ADDRESS ROLLOUTS_STATE_FOLDER ROLLOUTS_SANDBOX_HOST
export ROLLOUTS_STORE_FOLDER=$ROLLOUTS_SHARED/store ROLLOUTS_SANDBOX_BACKEND=apptainer
export ROLLOUTS_SANDBOX_CAPACITY=$ROLLOUTS_CAPACITY
rollouts() { node "$ROLLOUTS_CHECKOUT/bin/rollouts.mjs" "$@"; }
stop() {
  trap - TERM EXIT
  jobs -p | xargs -r kill 2>/dev/null || true
  wait
  rm -rf "$ROLLOUTS_STATE_FOLDER"
}
trap stop TERM EXIT
rollouts host &
rollouts worker --roles init,run &
wait -n
