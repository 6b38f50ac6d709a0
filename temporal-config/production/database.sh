#!/usr/bin/env bash
# Makes the two databases on PostgreSQL (>= 12) and brings their schema up to date; to be run before the first start
# and before a newer server. Idempotent.
#   TEMPORAL_PROGRAMS  folder of install.sh
#   SQL_HOST, SQL_PORT, SQL_USER, SQL_PASSWORD  who may create databases
set -euo pipefail
: "${TEMPORAL_PROGRAMS:?}" "${SQL_PASSWORD:?}"
export SQL_HOST=${SQL_HOST:-127.0.0.1} SQL_PORT=${SQL_PORT:-5432} SQL_USER=${SQL_USER:-temporal} SQL_PASSWORD
export SQL_PLUGIN=postgres12
sql=$TEMPORAL_PROGRAMS/sql
for pair in temporal:temporal temporal_visibility:visibility; do
  database=${pair%%:*} schema=postgresql/v12/${pair##*:}
  # Fails where there is no database yet; then what fails below says why.
  if ! "$sql" --database "$database" update-schema --schema-name "$schema" >/dev/null 2>&1; then
    "$sql" --quiet --database "$database" create
    "$sql" --database "$database" setup-schema --version 0.0
    "$sql" --database "$database" update-schema --schema-name "$schema"
  fi
done
