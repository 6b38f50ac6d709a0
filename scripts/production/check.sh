#!/usr/bin/env bash
# `npm run check:production`: what in temporal-config/production cannot be run on every machine is checked with the real
# rules of those who would run it: Kubernetes' schemas, Compose's, shellcheck, systemd, the Temporal server itself. What a
# machine lacks (systemd-analyze, Go, the server of `npm run test:production`) is named and left out.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${ROLLOUTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/durable-rollouts}
python=$cache/check-production/bin
cd "$root/temporal-config/production"

[ -x "$python/python" ] || python3 -m venv "$cache/check-production"
"$python/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"

scripts=(./*.sh slurm/* "$here/check.sh")
"$python/shellcheck" "${scripts[@]}"
echo "shellcheck: ${#scripts[@]} scripts"

for file in kubernetes/*.yaml; do
  [ "$file" = kubernetes/kustomization.yaml ] || "$python/kubernetes-validate" --strict --quiet -k 1.35 "$file"
done
echo "Kubernetes 1.35, strictly: $(grep -c '^kind:' kubernetes/[!k]*.yaml | awk -F: '{n += $2} END {print n}') manifests"

if command -v go >/dev/null; then
  schema=$(cd / && go mod download -json github.com/compose-spec/compose-go/v2@v2.16.2 |
    "$python/python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')/schema/compose-spec.json
  "$python/python" - compose.yaml "$schema" <<'CODE'
import json, sys, jsonschema, yaml
jsonschema.validate(yaml.safe_load(open(sys.argv[1])), json.load(open(sys.argv[2])))
CODE
  echo 'Compose: compose.yaml'
else
  echo 'LEFT OUT: compose.yaml, whose schema comes with Go'
fi

if command -v systemd-analyze >/dev/null; then
  units=$(mktemp -d)
  trap 'rm -rf "$units"' EXIT
  for file in systemd/*.{service,timer}; do
    # The programs as they lie here, so that they are found.
    sed "s#/usr/bin/node#$(command -v node)#; s#/opt/rollouts#$root#" "$file" >"$units/$(basename "${file/@/@run}")"
  done
  systemd-analyze verify --man=no "$units"/*.{service,timer}
  systemd-analyze security --offline=yes --threshold=60 --no-pager "$units"/*.service | grep 'Overall exposure'
else
  echo 'LEFT OUT: systemd units, since systemd-analyze is not here'
fi

server=$cache/temporal-server-1.32.2/server
if [ -x "$server" ]; then
  "$server" validate-dynamic-config dynamic-config.yaml
  TEMPORAL_SERVER_CERT=/c TEMPORAL_SERVER_KEY=/k TEMPORAL_CLIENT_CA=/a SQL_PASSWORD=x \
    "$server" --root . --config . --env server render-config >/dev/null 2>&1
  echo 'Temporal server: server.yaml, dynamic-config.yaml'
else
  echo 'LEFT OUT: server.yaml and dynamic-config.yaml, until npm run test:production has built the server'
fi
