"""Processes that die in mid-run, by kill -9: nothing acknowledged is lost, and the ledger says what became of the rest."""

import signal
from pathlib import Path

from fanin_run import FANIN, Folder, Run, check_balanced, fanin, verify, wait_until


def builder_dies(protocol, deadline="1s"):
    with Folder() as folder:
        with Run(folder.small(protocol), "--set", f"event.deadline={deadline}", "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(1000)
            run.kill("bu1")
            run.wait_for("bu1 died: killed by signal 9")
            run.wait_for_events(1000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events"
        assert result["fragments"]["lost"] == 0, "lost fragments"
        assert result["nodes"]["bu1"]["exit"].startswith("killed by signal 9"), result["nodes"]["bu1"]
        verified = verify(result)
        assert verified["events"] == result["events"]["built"], "events in the files"


def test_the_events_of_a_dead_builder_are_built_by_others():
    builder_dies("push")


def test_the_events_of_a_dead_builder_are_built_by_others_with_pull():
    builder_dies("pull")


def test_a_frozen_builder_is_killed_when_it_is_given_up():
    with Folder() as folder:
        with Run(folder.small(), "--set", "network.dead_after=1200ms", "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(200)
            run.kill("bu1", signal.SIGSTOP)
            run.wait_for("bu1 died: killed by signal 9 .*; starting it again")
            run.wait_for_events(200)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events"


def test_when_all_builders_were_frozen_the_run_goes_on_with_new_ones():
    with Folder() as folder:
        with Run(folder.small(), "--set", "network.dead_after=1200ms", "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(200)
            for node in ("bu0", "bu1"):
                run.kill(node, signal.SIGSTOP)
            for _ in range(2):
                run.wait_for(r"builder unit 'bu\d' has joined again")
            run.wait_for_events(1000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events"


def test_a_builder_that_comes_back_by_hand_joins_and_writes_new_files():
    with Folder() as folder:
        config = folder.small()
        with Run(config, "--duration", "60s") as run:
            url = run.url()
            run.wait_for("run 1 begins")
            run.wait_for_events(500)
            run.kill("bu1")
            hint = run.wait_for("bu1 died: .*start it again with: (.*)")[1]
            assert "--node bu1" in hint and url in hint, f"the hint does not help: {hint}"
            assert hint.startswith(f"{FANIN} run {config} "), f"not as the user called it: {hint}"
            with Run(config, "--node", "bu1", "--set", f"network.control={url}") as again:
                run.wait_for("builder unit 'bu1' has joined again")
                run.wait_for_events(1000)
                run.signal(signal.SIGINT)
                result = run.finish()
                again.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["nodes"]["bu1"]["starts"] == 2, "starts of bu1"
        assert any("bu1_i2" in name for name in result["files"]), f"no new file of bu1: {result['files']}"
        assert verify(result)["events"] == result["events"]["built"], "events in the files"


def readout_dies(protocol, deadline="300ms"):
    with Folder() as folder:
        config = folder.small(protocol, more=f'[event]\ndeadline = "{deadline}"\n')
        with Run(config, "--set", "run.restart=true", "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(500)
            config.write_text("for the next run")  # it is being edited: this run keeps what it began with
            run.kill("ru1")
            run.wait_for("ru1 died: killed by signal 9")
            run.wait_for("readout unit 'ru1' has joined again")
            run.wait_for_events(1000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["nodes"]["ru1"]["starts"] == 2, "starts of ru1"
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] > 0, "no event was incomplete"
        for name in ("0x100", "0x101"):
            assert result["sources"][name]["missing"] == 0, f"missing fragments of {name}"
        for name in ("0x102", "0x103"):
            source = result["sources"][name]
            assert 0 < source["missing"] < result["events"]["built"], f"{name}: {source}"
        verified = verify(result)
        assert verified["events"] == result["events"]["built"], "events in the files"
        assert verified["incomplete"] == result["events"]["incomplete"], "incomplete events in the files"


def test_the_run_goes_on_without_a_dead_readout_unit_until_it_is_back():
    readout_dies("push")


def test_the_run_goes_on_without_a_dead_readout_unit_until_it_is_back_with_pull():
    readout_dies("pull")


def test_a_readout_unit_whose_death_the_launcher_has_seen_is_not_waited_for():
    with Folder() as folder:
        config = folder.small()
        times = ("network.grace=50s", "network.dead_after=60s", "network.give_up_after=70s")
        with Run(config, *(word for time in times for word in ("--set", time)), "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(500)
            run.kill("ru1")
            run.wait_for(r"readout unit 'ru1' is gone \(it died\)")
            run.wait_for_events(1000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["incomplete"] > 0, "no event was incomplete"


def test_when_the_event_manager_dies_everything_stops_and_what_was_built_is_safe():
    with Folder() as folder:
        with Run(folder.small(), "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            built = run.wait_for_events(1000)
            run.kill("evm")
            run.wait_for("evm died: killed by signal 9.*what was built is safe")
            result = run.finish(status=1)
        assert "the event manager died" in result["error"], result["error"]
        assert result["events"]["built"] >= built, f"{result['events']} after {built} were built"
        assert result["fragments"]["read"] >= result["fragments"]["built"], result["fragments"]
        verified = verify(result)
        assert verified["events"] == result["events"]["built"], "events in the files"
        [manifest] = folder.path.rglob("*.manifest.json")
        lines = manifest.read_text().splitlines(keepends=True)
        manifest.write_text("".join(line for line in lines if "bu1" not in line))  # as if it had died before it heard of the file
        named = fanin("verify", manifest)
        assert named.returncode == 0, named.stdout
        assert f"{verified['events']}: " in named.stdout and "does not name it" in named.stdout, named.stdout


def test_when_the_event_manager_dies_after_a_builder_unit_its_events_are_not_called_lost():
    with Folder() as folder:
        with Run(folder.small(), "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(500)
            run.kill("bu0")
            run.wait_for("bu0 died")
            run.wait_for_events(1000)
            run.kill("evm")
            result = run.finish(status=1)
        assert result["not_summed"] == ["bu0"], result["not_summed"]
        assert "without bu0, which died as well" in result["error"], result["error"]
        assert sorted(result["fragments"]) == ["built", "read"] and list(result["events"]) == ["built"], result
        assert "lost" not in run.text().split("fragments  ")[1].splitlines()[0]
        assert len(result["files"]) == 2, result["files"]
        verified = verify(result)
        assert verified["events"] > result["events"]["built"], "bu0 has stored some"


def test_a_frozen_event_manager_is_named_and_the_run_goes_on_when_it_wakes():
    with Folder() as folder:
        with Run(folder.small(), "--duration", "60s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(200)
            run.kill("evm", signal.SIGSTOP)
            run.wait_for("waiting for evm, silent for 5 s")
            run.wait_for("evm has reported nothing for 5 s: it is frozen")
            run.kill("evm", signal.SIGCONT)
            run.wait_for("evm reports again")
            run.wait_for_events(1000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events"


def test_all_builders_die_and_the_run_waits_for_one():
    with Folder() as folder:
        config = folder.small(builders=1)
        with Run(config, "--duration", "60s") as run:
            url = run.url()
            run.wait_for("run 1 begins")
            run.wait_for_events(500)
            run.kill("bu0")
            run.wait_for("bu0 died")
            with Run(config, "--node", "bu0", "--set", f"network.control={url}") as again:
                run.wait_for("builder unit 'bu0' has joined again")
                run.wait_for_events(500)
                run.signal(signal.SIGINT)
                result = run.finish()
                again.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert verify(result)["events"] == result["events"]["built"], "events in the files"


def test_a_killed_launcher_takes_its_nodes_along():
    with Folder() as folder:
        with Run(folder.small(), "--duration", "60s") as run:
            pids = [run.pid(node) for node in ("evm", "ru0", "ru1", "bu0", "bu1")]
            run.wait_for_events(200)
            run.process.kill()
            run.process.wait()
            for pid in pids:
                wait_gone(pid)
            files = sorted((folder.path / "out").glob("*.h5"))
            done = fanin("verify", *files)
            assert done.returncode == 0, done.stdout


def wait_gone(pid):

    def gone():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
        except OSError:
            return True
    wait_until(gone, f"process {pid} ends")
