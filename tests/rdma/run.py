#!/usr/bin/env python3
"""In a guest that has RDMA (tools/rdma_guest.sh, NUMA=1), from the root of the tree: what ./dev test-rdma runs there.

    tests/rdma/run.py BUILD
"""

import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from checks import Session, reporting  # noqa: E402

RDMA_TEST = "tests/rdma/rdma_test.py"
URLS = ("verbs://10.9.0.1", "verbs://10.9.0.1?share_above=1", "ofi+verbs://10.9.0.1")
LIMIT = ("timeout", "600")  # of a step, in seconds: several times what the longest takes on a quiet machine


def tests_in(file):
    found = re.findall(r"^def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)
    assert found, f"no test in {file}"
    return found


def main(build):
    os.environ |= {"FANIN": str(ROOT / build / "bin/fanin"), "FANIN_SOURCE_DIR": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONUNBUFFERED": "1"}
    session, started = Session(), time.monotonic()

    def gtest(name, program, selection="*", **environment):
        session.run(name, reporting("--gtest_output=xml:", *LIMIT, f"{build}/tests/{program}", f"--gtest_filter={selection}",
                                    "--gtest_brief=1", **environment), again="in the guest")

    def pytest(name, *tests, **environment):
        words = ("python3", "-m", "pytest", *(f"{RDMA_TEST}::{test}" for test in tests))
        session.run(name, reporting("--junitxml=", *LIMIT, *words, **environment), again="in the guest")

    session.run("both devices are there", lambda: (Path("/sys/class/infiniband/rxe1").exists(), ""))
    gtest("peers that are no peers, options", "fanin_net_verbs_test")
    gtest("conformance suite over ofi+tcp", "fanin_net_test", "Ofi/*/ofi_tcp")
    for url in URLS:  # each by itself: a selection that matches nothing fails
        gtest(f"conformance suite over {url}", "fanin_net_test", "Given/*", FANIN_TEST_URLS=url)
        gtest(f"message sockets over {url}", "fanin_message_test", "Sockets/*/*verbs*", FANIN_TEST_URLS=url)
    pytest("event builder over ofi+verbs", "test_two_by_two_build_every_event",
           "test_two_by_two_build_every_event_with_pull", "test_the_events_of_a_dead_builder_are_built_by_others",
           FANIN_RDMA_SCHEME="ofi+verbs")
    for test in tests_in(RDMA_TEST):
        pytest(test, test)
    return session.close(started)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
