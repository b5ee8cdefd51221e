#!/usr/bin/env bash
# Tries the filter with an installed fanin: check.sh PREFIX BUILD_DIR (tests/install/run.sh calls it).
set -euo pipefail
prefix=$1; build=$2; here=$(cd "$(dirname "$0")" && pwd)
[[ -x $prefix/bin/fanin ]] || { echo "no command installed: only built"; exit 0; }
mkdir -p "$here/build"
cp "$build/threshold_filter.so" "$here/build/"
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
"$prefix/bin/fanin" run "$here/filter.toml" --duration 1s --set "run.output=$output"
"$prefix/bin/fanin" verify "$output"/*.h5
"$prefix/bin/fanin" inspect "$(ls "$output"/*.h5 | head -1)" | grep "in physics"
