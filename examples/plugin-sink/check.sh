#!/usr/bin/env bash
# Tries the sink with an installed fanin: check.sh PREFIX BUILD_DIR (tests/install/run.sh calls it).
set -euo pipefail
prefix=$1; build=$2; here=$(cd "$(dirname "$0")" && pwd)
[[ -x $prefix/bin/fanin ]] || { echo "no command installed: only built"; exit 0; }
mkdir -p "$here/build"
cp "$build/table_sink.so" "$here/build/"
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
"$prefix/bin/fanin" run "$here/sink.toml" --events 1000 --set "run.output=$output"
[[ $(grep -c '^[0-9]*,[0-9.]*,[0-9.]*$' "$output/run1_bu0_1.csv") == 1000 ]]
