# What run.sh and static.sh share: the source tree, a folder of their own, a project that uses fanin.
set -euo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '== %s\n' "$*"; }

build_project() {  # name, folder, where fanin is
  cmake -G Ninja -S "$2" -B "$work/$1" -D CMAKE_PREFIX_PATH="$3" -D CMAKE_BUILD_TYPE=Release \
    -D CMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/$1.log" 2>&1 &&
    cmake --build "$work/$1" >>"$work/$1.log" 2>&1 || { cat "$work/$1.log"; return 1; }
}
