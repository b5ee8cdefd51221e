"""The event builder over ofi+tcp://: a run, and the deaths of processes."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))
import fanin_run  # noqa: E402
from fanin_run import fanin, main  # noqa: E402

import death_test as death  # noqa: E402

if not any(finding["what"] == "libfabric" and "ofi+tcp" in finding["found"]
           for finding in json.loads(fanin("doctor", "--json", "-").stdout)["findings"]):
    print("no libfabric here")
    sys.exit(77)

fanin_run.URL = "ofi+tcp://127.0.0.1"


def test_the_events_of_a_dead_builder_are_built_by_others():
    death.builder_dies("push")


def test_the_run_goes_on_without_a_dead_readout_unit_until_it_is_back():
    death.readout_dies("push")


def test_when_the_event_manager_dies_everything_stops_and_what_was_built_is_safe():
    death.test_when_the_event_manager_dies_everything_stops_and_what_was_built_is_safe()


if __name__ == "__main__":
    main()
