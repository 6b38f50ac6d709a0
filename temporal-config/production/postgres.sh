#!/usr/bin/env bash
# A PostgreSQL of one's own in a folder, in the foreground, for the user who runs this: postgres.sh <folder>. For tests,
# and for clusters that have no database server. It listens on the loopback address and is made at the first start.
#   SQL_PORT      5432 if not set
#   SQL_PASSWORD  of the user "temporal"
set -euo pipefail
folder=${1:?usage: postgres.sh <folder>}
: "${SQL_PASSWORD:?}"
if ! command -v initdb >/dev/null; then # Debian keeps them off PATH
  for programs in /usr/lib/postgresql/*/bin; do PATH=$programs:$PATH; done
fi
if [ ! -s "$folder/PG_VERSION" ]; then
  initdb --pgdata "$folder" --username temporal --auth scram-sha-256 --encoding UTF8 --data-checksums \
    --pwfile <(printf '%s' "$SQL_PASSWORD") >/dev/null
fi
exec postgres -D "$folder" -p "${SQL_PORT:-5432}" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
  -c max_connections=120 -c shared_buffers=256MB -c wal_compression=on
