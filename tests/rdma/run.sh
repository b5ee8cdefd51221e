#!/usr/bin/env bash
# In a guest that has RDMA (tools/rdma_guest.sh), from the root of the tree: what ./dev test-rdma runs there.
#   usage: tests/rdma/run.sh BUILD [numa]
set -uo pipefail
build=$1
export FANIN=$PWD/$build/bin/fanin FANIN_SOURCE_DIR=$PWD PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
export FANIN_TEST_URLS="verbs://10.9.0.1 verbs://10.9.0.1?share_above=1 ofi+verbs://10.9.0.1"
passed=0 failed=0
run() {  # name, command...
  local start=$SECONDS name=$1; shift
  if timeout 300 "$@" >/tmp/log 2>&1; then
    ((passed += 1)); echo "   passed  $name ($((SECONDS - start)) s)"
  else
    ((failed += 1)); tail -60 /tmp/log; echo "   FAILED  $name ($((SECONDS - start)) s)"
  fi
}

if [[ ${2:-} == numa ]]; then
  run "NUMA nodes" python3 tests/rdma/rdma.py test_pools_and_threads_are_on_the_configured_numa_node
else
  run "peers that are no peers, options" "$build/tests/fanin_net_test" --gtest_brief=1 --gtest_filter='Verbs*'
  run "conformance suite" "$build/tests/fanin_net_test" --gtest_brief=1 \
    --gtest_filter='Given/*:Ofi/*/ofi_tcp'
  run "message sockets" "$build/tests/fanin_message_test" --gtest_brief=1 \
    --gtest_filter='sockets/*/*verbs*'
  if command -v valgrind >/dev/null; then
    run "what a message costs" python3 tests/rdma/cost.py check
  fi
  run "event builder over ofi+verbs" env FANIN_RDMA_SCHEME=ofi+verbs python3 tests/rdma/rdma.py \
    test_two_by_two_build_every_event test_two_by_two_build_every_event_with_pull \
    test_the_events_of_a_dead_builder_are_built_by_others
  for test in $(grep -oP '^def \Ktest_\w+' tests/rdma/rdma.py | grep -v numa); do
    run "$test" python3 tests/rdma/rdma.py "$test"
  done
fi
echo "   $passed passed, $failed failed in the guest"
((failed == 0))
