"""Traffic shaping in whole runs: every policy builds every event, and what cannot work is refused before."""

import sys

import pytest
from support.fanin_run import Folder, Run, check_balanced, fanin, verify

POLICIES = ["random", "linear-shift", "barrel-shifter", "tokens"]
SMALL = '[shaping]\npolicy = "{policy}"\ncarrier = "16KiB"\n[event]\nbatch_events = 256\n'


@pytest.mark.parametrize("protocol", ["push", "pull"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_builds_every_event(policy, protocol):
    with Folder() as folder:
        with Run(folder.small(protocol=protocol, more=SMALL.format(policy=policy)), "--events", "2000") as run:
            result = run.finish()
        check_balanced(result)
        assert (result["events"]["built"], result["events"]["incomplete"]) == (2000, 0), result["events"]
        verify(result)


def test_over_shared_memory_too():
    with Folder() as folder:
        config = folder.small(more=SMALL.format(policy="linear-shift"))
        with Run(config, "--events", "2000", "--set", "network.url=shm") as run:
            result = run.finish()
        check_balanced(result)
        assert (result["events"]["built"], result["events"]["incomplete"]) == (2000, 0), result["events"]
        verify(result)


def test_a_builder_unit_that_is_killed_loses_no_event():
    with Folder() as folder:
        with Run(folder.small(more=SMALL.format(policy="linear-shift")), "--events", "3000", "--set", "run.restart=true") as run:
            run.wait_for_events(500)
            run.kill("bu1")
            result = run.finish()
        check_balanced(result)
        assert (result["events"]["built"], result["events"]["incomplete"]) == (3000, 0), result["events"]


def test_a_shaping_that_cannot_serve_the_topology_is_refused():
    with Folder() as folder:
        config = folder.small(more='[shaping]\npolicy = "random"\ncarrier = "64KiB"\nwindow = "128KiB"\n')
        done = fanin("check", config)
        assert done.returncode == 2 and "shaping.window: 128 KiB is less than 2 carriers of 64 KiB" in done.stderr, done.stderr
        done = fanin("check", config, "--set", "shaping.window=1MiB", "--set", "shaping.carrier=1MiB")
        assert done.returncode == 2 and "shaping.carrier: 1 MiB is more than half a page" in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
