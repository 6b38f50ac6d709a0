#!/usr/bin/env bash
# Builds the Temporal server and its SQL tool into a folder: install.sh <folder>. Needs Go (it brings the version that
# the server wants by itself) and takes minutes.
set -euo pipefail
folder=${1:?usage: install.sh <folder>}
version=v1.32.2
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ -x "$folder/server" ] && [ -x "$folder/sql" ]; then exit 0; fi
GOTOOLCHAIN=go1.26.10 GOBIN="$folder" go install \
  "go.temporal.io/server/cmd/server@$version" "go.temporal.io/server/cmd/tools/sql@$version"
