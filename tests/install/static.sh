#!/usr/bin/env bash
# Static libraries, in which RDMA is linked in: builds them without optimisation, installs them, runs the command and a
# program that uses them.
#   usage: tests/install/static.sh
source "$(dirname "$0")/common.sh"

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
cp -r "$source_dir/examples/sockets" "$work/source-net"
build_project static-net "$work/source-net" "$work/static-prefix"
bash "$work/source-net/check.sh" "$work/static-prefix" "$work/static-net"

say "passed"
