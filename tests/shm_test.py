"""The event builder over shm://: the deaths of processes, and what they leave behind, which is nothing."""

import os
import signal
from pathlib import Path

import pytest

import death_test as death
import fanin_run
import replay_test as replay
from fanin_run import Folder, Run, check_balanced, verify, wait_until


@pytest.fixture(autouse=True)
def over_shared_memory(monkeypatch):
    monkeypatch.setattr(fanin_run, "URL", "shm://")


def sockets():
    """The names of fanin's Unix sockets on this host."""
    return {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@fanin/" in line}


def memories(pid):
    """What a process maps of memory that has no name in any folder, by inode."""
    return {line.split()[4] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/memfd:fanin" in line}


def test_the_events_of_a_dead_builder_are_built_by_others():
    death.builder_dies("push")


def test_the_events_of_a_dead_builder_are_built_by_others_with_pull():
    death.builder_dies("pull")


def test_a_builder_that_comes_back_by_hand_joins_and_writes_new_files():
    death.test_a_builder_that_comes_back_by_hand_joins_and_writes_new_files()


def test_the_run_goes_on_without_a_dead_readout_unit_until_it_is_back():
    death.readout_dies("push")


def test_the_run_goes_on_without_a_dead_readout_unit_until_it_is_back_with_pull():
    death.readout_dies("pull")


def test_when_the_event_manager_dies_everything_stops_and_what_was_built_is_safe():
    death.test_when_the_event_manager_dies_everything_stops_and_what_was_built_is_safe()


def test_a_killed_launcher_takes_its_nodes_along_and_leaves_nothing_behind():
    before = sockets()
    death.test_a_killed_launcher_takes_its_nodes_along()
    of_the_run = sockets() - before  # and of what else runs here now, which ends too
    wait_until(lambda: not of_the_run & sockets(), f"no socket is left: {of_the_run}")
    left = [name for name in os.listdir("/dev/shm") if "fanin" in name] if Path("/dev/shm").is_dir() else []
    assert left == [], "files in /dev/shm"


def test_the_memory_of_a_dead_process_is_let_go_by_those_who_read_it():
    with Folder() as folder:
        with Run(folder.small(), "--duration", "60s") as run:
            pids = {node: run.pid(node) for node in ("evm", "ru0", "ru1", "bu0", "bu1")}
            run.wait_for("run 1 begins")
            run.wait_for_events(1000)
            # Its fragments lie in memory that only it and the builder units have.
            own = memories(pids["ru1"]) - memories(pids["ru0"]) - memories(pids["evm"])
            assert own & memories(pids["bu0"]) and own & memories(pids["bu1"]), "its memory is read where it is"
            run.kill("ru1")
            run.wait_for("ru1 died")
            run.wait_for_events(1000)
            wait_until(lambda: not own & memories(pids["bu0"]) and not own & memories(pids["bu1"]),
                       "the builder units let go of its memory")
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert verify(result)["events"] == result["events"]["built"], "events in the files"


def test_control_goes_over_tcp_and_data_over_shared_memory_in_one_process():
    with Folder() as folder:
        done = fanin_run.fanin("run", folder.small(), "--set", "network.control=tcp://127.0.0.1", "--events", "2000",
                               "--json", "-")
        assert done.returncode == 0, done.stderr
        result = fanin_run.json.loads(done.stdout)
        check_balanced(result)
        assert verify(result)["events"] == result["events"]["built"], "events in the files"


def test_replayed_detector_data_are_the_same_over_shared_memory():
    with Folder() as folder:
        result = replay.replay(folder, "replay-hld.toml", replay.hld_path(), "network.url=shm://")
        replay.check_hld(result)
        replay.compare(replay.built_fragments(result, folder), replay.hld_expected("trigger"))
