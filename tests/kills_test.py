"""A whole run whose nodes are killed at random instants, again and again: what the event manager has acknowledged is in
the files, once and with good checksums. FANIN_KILL_ROUNDS kills (a handful, if it is not set; a nightly run does 1000),
FANIN_SEED other instants:

    FANIN_KILL_ROUNDS=1000 FANIN=build/release/bin/fanin python3 -m pytest -s tests/kills_test.py
"""

import os
import random
import re
import signal
import threading

from fanin_run import Folder, Run, check_balanced, fanin, verify

ROUNDS = int(os.environ.get("FANIN_KILL_ROUNDS", "6"))
SEED = int(os.environ.get("FANIN_SEED", "20261122"))
KILLS_OF_A_RUN = max(1, min(20, ROUNDS // 2))  # each leaves files behind
LONGEST_WAIT_S = 0.2  # until the next kill


def at_a_random_instant(choice):
    """The instant is what is random: nothing is waited for."""
    threading.Event().wait(choice.uniform(0, LONGEST_WAIT_S))


def pid_of(run, node):
    """Of its latest start."""
    return [int(found[1]) for line in run.lines if (found := re.search(rf" {node} is process (\d+)$", line))][-1]


def builders_are_killed(kills, choice):
    with Folder() as folder:
        config = folder.small(choice.choice(["push", "pull"]), builders=3)
        with Run(config, "--set", "run.restart=true", "--set", "storage.max_file=1MiB") as run:
            run.wait_for("run 1 begins")
            for _ in range(kills):
                at_a_random_instant(choice)
                node = f"bu{choice.randrange(3)}"
                os.kill(pid_of(run, node), signal.SIGKILL)
                run.wait_for(rf"{node} died: killed by signal 9")
                run.wait_for(rf"{node} is process")  # the next line may still be of the one before
                run.wait_for(rf"builder unit '{node}' has joined")  # "again", unless it was killed before it came
            run.signal()
            result = run.finish()
        check_balanced(result)
        for what in ("lost", "incomplete"):
            assert result["events"][what] == 0, f"{what} events"
        manifest = fanin("verify", result["manifest"])
        assert manifest.returncode == 0, f"fanin verify: {manifest.stdout}{manifest.stderr}"
        assert verify(result)["events"] == result["events"]["built"], "events in the files"
        return result["events"]["built"]


def readout_units_are_killed(kills, choice):
    """And builder units: a fragment that died with its readout unit is missing, and the event is there once."""
    with Folder() as folder:
        config = folder.small(choice.choice(["push", "pull"]), readouts=3, builders=2, more='[event]\ndeadline = "300ms"\n')
        killed = set()
        with Run(config, "--set", "run.restart=true", "--set", "storage.max_file=1MiB") as run:
            run.wait_for("run 1 begins")
            for _ in range(kills):
                at_a_random_instant(choice)
                kind, node = choice.choice([("readout", f"ru{i}") for i in range(2)] + [("builder", "bu0")])
                killed.add(node)
                os.kill(pid_of(run, node), signal.SIGKILL)
                run.wait_for(rf"{node} died: killed by signal 9")
                run.wait_for(rf"{node} is process")  # the next line may still be of the one before
                run.wait_for(rf"{kind} unit '{node}' has joined")
            run.signal()
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        found = verify(result)
        for what in ("built", "incomplete"):
            assert found["events" if what == "built" else what] == result["events"][what], f"{what} events in the files"
        for i, sources in enumerate([("0x100", "0x101"), ("0x102", "0x103"), ("0x104", "0x105")]):
            for name in sources:
                source = result["sources"][name]
                assert source["missing"] == 0 or f"ru{i}" in killed, f"{name} of a readout unit that lived: {source}"
        manifest = fanin("verify", result["manifest"])
        assert manifest.returncode == 0, f"fanin verify: {manifest.stdout}{manifest.stderr}"
        return result["events"]["built"]


def the_event_manager_is_killed(choice):
    """All that it had said to be built is there, though nobody wrote a summary."""
    with Folder() as folder:
        with Run(folder.small(choice.choice(["push", "pull"]), builders=2)) as run:
            run.wait_for("run 1 begins")
            at_a_random_instant(choice)
            pid = pid_of(run, "evm")
            os.kill(pid, signal.SIGKILL)
            result = run.finish(status=1)
            said = [int(found[1]) for line in run.lines if (found := re.search(r" (\d+) events ", line))]
        if not result["files"]:  # nothing was written yet
            assert (result["events"]["built"], max(said, default=0)) == (0, 0), "built events without a file"
            return 0
        found = verify(result)
        assert found["events"] == result["events"]["built"], "events in the files"
        assert found["events"] >= max(said, default=0), f"{found['events']} events in the files, {said[-1:]} were built"
        return found["events"]


def test_nothing_acknowledged_is_lost_in_a_run_whose_nodes_are_killed():
    print(f"FANIN_SEED={SEED} FANIN_KILL_ROUNDS={ROUNDS}", flush=True)
    left, events, run = ROUNDS, 0, 0
    while left > 0:
        choice = random.Random(f"{SEED}.{run}")
        kills = min(left, KILLS_OF_A_RUN)
        try:
            if kills > 1:
                units_are_killed = builders_are_killed if run % 2 == 0 else readout_units_are_killed
                events += units_are_killed(kills - 1, choice)
            events += the_event_manager_is_killed(choice)
        except AssertionError as problem:
            raise AssertionError(f"run {run} of FANIN_SEED={SEED}: {problem}") from None
        left, run = left - kills, run + 1
        print(f"{ROUNDS - left} kills, {events} events", flush=True)
