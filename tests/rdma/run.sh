#!/usr/bin/env bash
# In a guest that has RDMA (tools/rdma_guest.sh), from the root of the tree: what ./dev test-rdma runs there.
#   usage: tests/rdma/run.sh BUILD [numa]
set -uo pipefail
build=$1
export FANIN=$PWD/$build/bin/fanin FANIN_SOURCE_DIR=$PWD PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
passed=0 failed=0
run() {
  local start=$SECONDS
  if timeout 300 "$@" >/tmp/log 2>&1; then
    ((passed += 1)); echo "   passed  ${*: -1} ($((SECONDS - start)) s)"
  else
    ((failed += 1)); tail -60 /tmp/log; echo "   FAILED  ${*: -1} ($((SECONDS - start)) s)"
  fi
}

if [[ ${2:-} == numa ]]; then
  run python3 tests/rdma/rdma.py test_pools_and_threads_are_on_the_configured_numa_node
else
  run "$build/tests/fanin_net_rdma_test" --gtest_brief=1
  for test in $(grep -oP '^def \Ktest_\w+' tests/rdma/rdma.py | grep -v numa); do
    run python3 tests/rdma/rdma.py "$test"
  done
fi
echo "   $passed passed, $failed failed in the guest"
((failed == 0))
