#!/usr/bin/env bash
# In a guest that has RDMA (tools/rdma_guest.sh), from the root of the tree: what ./dev test-rdma runs there.
#   usage: tests/rdma/run.sh BUILD
set -uo pipefail
build=$1
export FANIN=$PWD/$build/bin/fanin FANIN_SOURCE_DIR=$PWD PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
export FANIN_TEST_URLS="verbs://10.9.0.1 verbs://10.9.0.1?share_above=1 ofi+verbs://10.9.0.1"
passed=0 failed=0
run() {  # name, command...
  local start=$SECONDS name=$1; shift
  if timeout 300 "$@" >/tmp/log 2>&1 && ! grep -q ' 0 tests from 0 test' /tmp/log; then
    ((passed += 1)); echo "   passed  $name ($((SECONDS - start)) s)"
  else
    ((failed += 1)); tail -60 /tmp/log; echo "   FAILED  $name ($((SECONDS - start)) s)"
  fi
}

run "peers that are no peers, options" "$build/tests/fanin_net_verbs_test"
run "conformance suite" "$build/tests/fanin_net_test" --gtest_filter='Given/*:Ofi/*/ofi_tcp'
run "message sockets" "$build/tests/fanin_message_test" --gtest_filter='Sockets/*/*verbs*'
run "what a message costs" python3 tests/rdma/cost.py check
run "event builder over ofi+verbs" env FANIN_RDMA_SCHEME=ofi+verbs python3 -m pytest \
  tests/rdma/rdma_test.py::test_two_by_two_build_every_event tests/rdma/rdma_test.py::test_two_by_two_build_every_event_with_pull \
  tests/rdma/rdma_test.py::test_the_events_of_a_dead_builder_are_built_by_others
for test in $(grep -oP '^def \Ktest_\w+' tests/rdma/rdma_test.py); do
  [[ $test != *numa* || -e /sys/devices/system/node/node1 ]] || continue
  run "$test" python3 -m pytest "tests/rdma/rdma_test.py::$test"
done
echo "   $passed passed, $failed failed in the guest"
((failed == 0))
