#!/usr/bin/env bash
# Tries the programs: check.sh PREFIX BUILD_DIR (tests/install/run.sh calls it).
set -euo pipefail
build=$2
pair() {  # receiver, sender with its arguments, what the receiver says last
  local url=shm://example-$$:1 said
  "$build/$1" "$url" >"$build/$1.out" & local receiver=$!
  "$build/$2" "$url" "${@:4}"
  wait "$receiver"
  said=$(tail -1 "$build/$1.out")
  [[ $said == "$3" ]] || { echo "$1 said '$said' instead of '$3'"; exit 1; }
}
pair low_latency_receive low_latency_send bye hello bye
pair high_throughput_receive high_throughput_send "1000000 messages, 200000000 bytes"
pair subscribe publish "1000 messages under tag 7"

from=shm://example-from-$$:1 to=shm://example-to-$$:1
"$build/high_throughput_receive" "$to" >"$build/forwarded.out" & receiver=$!
"$build/forward" "$from" "$to" & forwarder=$!
"$build/high_throughput_send" "$from"
wait "$forwarder" "$receiver"
said=$(cat "$build/forwarded.out")
[[ $said == "1000000 messages, 200000000 bytes" ]] || { echo "forwarded: '$said'"; exit 1; }
echo "three pairs of sockets, and a forwarder: good"
