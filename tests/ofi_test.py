"""The event builder over libfabric: connected endpoints (tcp), and datagrams (shm; tcp-rxm). Runs, and deaths."""

import contextlib
import json
import signal

import pytest

import death_test as death
import fanin_run
from fanin_run import Folder, Run, check_balanced, fanin, verify
from tools_test import Tool


@pytest.fixture(autouse=True)
def over_libfabric(monkeypatch):
    findings = json.loads(fanin("doctor", "--json", "-").stdout)["findings"]
    if not any(finding["what"] == "libfabric" and "ofi+tcp" in finding["found"] for finding in findings):
        pytest.skip("no libfabric here")
    monkeypatch.setattr(fanin_run, "URL", "ofi+tcp://127.0.0.1")


def over(url, run, *arguments):
    before, fanin_run.URL = fanin_run.URL, url
    try:
        run(*arguments)
    finally:
        fanin_run.URL = before


def a_run(protocol):
    with Folder() as folder:
        with Run(folder.small(protocol), "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(2000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["fragments"]["lost"] == 0, "lost fragments"
        assert verify(result)["events"] == result["events"]["built"], "events in the files"


def test_events_are_built_over_both_kinds_of_endpoints():
    for url in ("ofi+tcp://127.0.0.1", "ofi+shm://127.0.0.1", "ofi+tcp-rxm://127.0.0.1"):
        for protocol in ("push", "pull"):
            over(url, a_run, protocol)


# Not over shm: who is killed within libfabric 1.17 may leave a lock in shared memory behind.
def test_the_events_of_a_builder_that_dies_over_datagrams_are_built_by_others():
    over("ofi+tcp-rxm://127.0.0.1", death.builder_dies, "push")


def test_the_events_of_a_dead_builder_are_built_by_others():
    death.builder_dies("push")


def test_the_run_goes_on_without_a_dead_readout_unit_until_it_is_back():
    death.readout_dies("push")


def test_when_the_event_manager_dies_everything_stops_and_what_was_built_is_safe():
    death.test_when_the_event_manager_dies_everything_stops_and_what_was_built_is_safe()


# One page each is posted before a peer has said who it is, two afterwards: all of them are connected, and at work.
def test_a_receiver_has_room_for_as_many_peers_as_it_is_told():
    with Tool("receive", "ofi+tcp://127.0.0.1", "--peers", 12) as receiver, contextlib.ExitStack() as senders:
        url = receiver.url()
        for _ in range(12):
            senders.enter_context(Tool("send", url, "--rate", "10Hz")).wait_for(r"[1-9][0-9]* messages")
        assert receiver.end(signal.SIGINT)["connections"] == 12
