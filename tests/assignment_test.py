"""Assignment policies in whole runs: who builds how much, and what a dead builder unit means for each."""

import sys

import pytest
from support.fanin_run import Folder, Run, check_balanced, fanin, h5py, verify

WEIGHTS = '[event]\nassignment = "weighted"\nlatency = "0"\nbatch_events = 16\n'


@pytest.mark.parametrize("policy", ["round-robin", "least-loaded", "weighted", "by-number"])
def test_every_policy_builds_every_event(policy):
    with Folder() as folder:
        with Run(folder.small(), "--events", "2000", "--set", f"event.assignment={policy}") as run:
            result = run.finish()
        check_balanced(result)
        assert (result["events"]["built"], result["events"]["incomplete"]) == (2000, 0), result["events"]
        verify(result)


def test_weights_share_the_bytes():
    with Folder() as folder:
        config = folder.small(builders=0, more=WEIGHTS)
        text = config.read_text().replace("[[builder]]\ncount = 0\n", "")
        config.write_text(text + "[[builder]]\n[[builder]]\nweight = 3\n")
        with Run(config, "--events", "3000", "--set", "network.url=inproc://") as run:  # both are there from the beginning
            result = run.finish()
        check_balanced(result)
        events = [result["nodes"][name]["events"] for name in ("bu0", "bu1")]
        assert 2.5 < events[1] / events[0] < 3.5, events


def test_by_number_puts_blocks_of_numbers_into_files_in_turn():
    with Folder() as folder:
        with Run(folder.small(), "--events", "1000", "--set", "event.assignment=by-number", "--set", "event.batch_events=64") as run:
            result = run.finish()
        for path in result["files"]:
            with h5py().File(path) as file:
                builder = int(path.split("_bu")[1][0])
                assert all(number // 64 % 2 == builder for number in file["events"]["event"]), path


def test_by_number_waits_for_a_dead_builder_unit_and_says_so():
    with Folder() as folder:
        with Run(folder.small(), "--set", "event.assignment=by-number", "--set", "event.batch_events=64") as run:
            run.wait_for_events(100)
            run.kill("bu1")
            run.wait_for(r"builder unit 'bu1' to start, which alone builds its share of the events")
            run.signal()
            run.wait_until_stopping()
            run.signal()
            assert "second signal" in run.finish(status=1)["error"]


def test_a_weight_without_the_policy_is_refused():
    with Folder() as folder:
        done = fanin("check", folder.small(more="weight = 2\n"))
        assert done.returncode == 2 and 'builder.0.weight: counts only with event.assignment = "weighted"' in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
