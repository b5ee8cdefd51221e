#!/usr/bin/env bash
# Installs a build into a folder of its own and uses it from there, as a user would: the command runs, a program and
# every example with a CMakeLists.txt build against find_package(fanin) with warnings as errors. Then once more with static
# libraries, compiled here without optimisation.
#   usage: tests/install/run.sh BUILD_DIR
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

say() { printf '== %s\n' "$*"; }

say "installing $build"
cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
# moved after the installation: nothing may depend on where it was
mv "$prefix" "$work/moved"; prefix=$work/moved

if [[ -x $prefix/bin/fanin ]]; then
  say "the installed command: $("$prefix/bin/fanin" --version | head -1)"
fi

say "the documents"
(cd "$source_dir" && find README.md docs -name '*.md') | while read -r document; do
  [[ -e $prefix/share/doc/fanin/$document ]] || { echo "$document is not installed"; exit 1; }
done

build_project() {  # name, folder, where fanin is
  cmake -G Ninja -S "$2" -B "$work/$1" -D CMAKE_PREFIX_PATH="${3:-$prefix}" -D CMAKE_BUILD_TYPE=Release \
    -D CMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/$1.log" 2>&1 &&
    cmake --build "$work/$1" >>"$work/$1.log" 2>&1 || { cat "$work/$1.log"; return 1; }
}

say "every installed header, without the source tree"
(cd "$prefix/include" && find fanin -name '*.hpp' | sort | sed 's/.*/#include "&"/') >"$work/headers.cpp"
"${CXX:-c++}" -std=c++23 -fsyntax-only -I "$prefix/include" "$work/headers.cpp"

say "a program of one's own"
build_project consumer "$source_dir/tests/install/consumer"
"$work/consumer/consumer"
if [[ -x $work/consumer/conformance ]]; then
  say "a transport of one's own against the installed suite"
  "$work/consumer/conformance" --gtest_brief=1
fi

say "the message sockets alone, without the event builder"
for component in fanin_net fanin_net_dev; do
  cmake --install "$build" --prefix "$work/sockets" --component "$component" >"$work/install.log"
done
cp -r "$source_dir/examples/sockets" "$work/source-net"
build_project net "$work/source-net" "$work/sockets"
bash "$work/source-net/check.sh" "$work/sockets" "$work/net"

failed=0
for list in "$source_dir"/examples/*/CMakeLists.txt; do
  [[ -e $list ]] || continue
  folder=$(dirname "$list"); name=$(basename "$folder")
  say "example $name"
  # copied out of the tree, so that it finds nothing there by accident
  cp -r "$folder" "$work/source-$name"
  build_project "$name" "$work/source-$name" || { failed=1; continue; }
  # an example may say how it is tried: check.sh PREFIX BUILD_DIR
  if [[ -e $work/source-$name/check.sh ]]; then
    bash "$work/source-$name/check.sh" "$prefix" "$work/$name" || failed=1
  fi
done

say "static libraries: RDMA is linked in"
built() { "$@" >"$work/static.log" 2>&1 || { cat "$work/static.log"; exit 1; }; }
built cmake -G Ninja -S "$source_dir" -B "$work/static" -D BUILD_SHARED_LIBS=OFF -D FANIN_TESTS=OFF -D FANIN_UNITY=ON \
  -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O0
built cmake --build "$work/static"
built cmake --install "$work/static" --prefix "$work/static-prefix"
static=$work/static-prefix/bin/fanin
ldd "$static" | grep libfanin && { echo "the static command needs fanin's libraries"; exit 1; }
small=(--events 2000 --set "run.output=$work/static-run" --set buffers.readout=16MiB --set buffers.builder=32MiB)
mkdir "$work/static-run"
if "$static" doctor --json - | grep -q 'ofi+tcp'; then
  [[ -z $(find "$work/static-prefix" -name 'fanin_ofi.so') ]] || { echo "a module is installed beside static libraries"; exit 1; }
  "$static" run "$source_dir/examples/quickstart.toml" "${small[@]}" --set network.url=ofi+tcp://127.0.0.1
else
  "$static" run "$source_dir/examples/quickstart.toml" "${small[@]}"
fi
"$static" verify "$work"/static-run/*.h5
build_project static-consumer "$source_dir/tests/install/consumer" "$work/static-prefix"
"$work/static-consumer/consumer"
build_project static-net "$work/source-net" "$work/static-prefix"
bash "$work/source-net/check.sh" "$work/static-prefix" "$work/static-net"

[[ $failed == 0 ]] && say "passed"
exit $failed
