#!/usr/bin/env bash
# Runs a Temporal server of all services in the foreground. server.yaml says what the environment may set.
#   TEMPORAL_PROGRAMS  folder of install.sh
#   SQL_PASSWORD       of the user "temporal"
set -euo pipefail
: "${TEMPORAL_PROGRAMS:?}" "${SQL_PASSWORD:?}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export TEMPORAL_DYNAMIC_CONFIG=${TEMPORAL_DYNAMIC_CONFIG:-$here/dynamic-config.yaml}
# Who may connect is decided by client certificates, where there are any, and by the network.
exec "$TEMPORAL_PROGRAMS/server" --config-file "$here/server.yaml" --allow-no-auth start \
  --service frontend --service internal-frontend --service history --service matching --service worker
