"""Ending a run: the first signal drains, the second stops at once, and neither leaves a process behind."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

from fanin_run import FANIN, LONGEST_S, Folder, Run, check_balanced, fanin, take_away, verify, wait_until


def alive(pid):
    return Path(f"/proc/{pid}").exists()


def drains(number):
    with Folder() as folder:
        with Run(folder.small()) as run:
            pids = [run.pid(node) for node in ("evm", "ru0", "ru1", "bu0", "bu1")]
            run.wait_for_events(500)
            run.signal(number)
            run.wait_for("stopping: what was read is still built")
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events"
        assert verify(result)["events"] == result["events"]["built"], "events in the files"
        assert not any(map(alive, pids)), "a process was left behind"


def test_sigint_drains_and_closes():
    drains(signal.SIGINT)


def test_sigterm_drains_and_closes():
    drains(signal.SIGTERM)


def test_builder_units_that_die_while_the_run_stops_are_started_again():
    with Folder() as folder:
        with Run(folder.small(), "--set", "run.restart=true", "--set", "run.drain=1h") as run:
            run.wait_for_events(200)
            for node in ("bu0", "bu1"):
                run.kill(node, signal.SIGSTOP)
            run.wait_for(r" [1-9]\d{2,} open")
            run.signal()
            run.wait_for("stopping: what was read is still built")
            for node in ("bu0", "bu1"):
                run.kill(node)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert verify(result)["events"] == result["events"]["built"], "events in the files"


def test_a_second_signal_stops_at_once():
    with Folder() as folder:
        with Run(folder.small(), "--set", "run.drain=1h") as run:
            run.wait_for_events(200)
            # Frozen builder units: the first signal alone would wait for them.
            for node in ("bu0", "bu1"):
                run.kill(node, signal.SIGSTOP)
            run.wait_for(r" [1-9]\d{2,} open")
            run.signal()
            run.wait_until_stopping()
            run.signal(signal.SIGHUP)  # a closed terminal is no second one
            run.wait_for("  stopping")
            run.signal()
            result = run.finish(status=1)
        assert "second signal" in result["error"], result["error"]
        check_balanced(result)
        assert result["events"]["lost"] > 0, result["events"]
        done = fanin("verify", result["manifest"])
        assert done.returncode == 0, f"what was stored and not acknowledged is no fault: {done.stdout}"


def test_a_signal_during_the_start_ends_in_good_order():
    for line in ("evm is process", "evm +listens at", "bu1 is process"):
        with Folder() as folder:
            with Run(folder.small()) as run:
                run.wait_for(line)
                run.signal()
                run.finish(status=None)
                assert "died" not in run.text() and "failed" not in run.text(), run.text()


def test_a_signal_to_all_processes_at_once_drains():
    with Folder() as folder:
        with Run(folder.small()) as run:
            nodes = ("evm", "ru0", "ru1", "bu0", "bu1")
            pids = [run.pid(node) for node in nodes]
            run.wait_for_events(500)
            for number in (signal.SIGSTOP, signal.SIGTERM):
                for pid in pids:
                    os.kill(pid, number)
            run.signal(signal.SIGTERM)
            run.wait_for("stopping: what was read is still built")
            for pid in pids:  # they find both signals at once
                os.kill(pid, signal.SIGCONT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"


def drains_without_a_reader(reader, writer, number):
    """The reader of the log goes away in the middle of the run, which is then ended by a signal."""
    with Folder() as folder:
        path = folder.path / "result.json"
        process = subprocess.Popen([FANIN, "run", folder.small(), "--log", "debug", "--json", path], stderr=writer)
        os.close(writer)
        text = b""
        while text.count(b" events ") < 3:
            text += os.read(reader, 65536)
        os.close(reader)
        process.send_signal(number)
        assert process.wait(timeout=LONGEST_S) == 0, "exit status"
        result = json.loads(path.read_text())
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        verify(result)


def test_a_closed_terminal_drains():
    drains_without_a_reader(*pty.openpty(), signal.SIGHUP)


def test_a_closed_terminal_does_not_end_a_run_under_nohup():
    with Folder() as folder:
        with Run(folder.small(), "--events", "3000", prefix=("nohup",)) as run:
            run.wait_for_events(500)
            run.signal(signal.SIGHUP)
            result = run.finish()
        assert result["events"]["built"] == 3000, run.text()


def test_closed_standard_descriptors_are_not_taken_by_files():
    with Folder() as folder:
        result = folder.path / "result.json"
        subprocess.run(["sh", "-c", f"exec {FANIN} run {folder.small()} --events 500 --set network.url=inproc:// "
                        f"--json {result} <&- >&- 2>&-"], timeout=LONGEST_S, check=True)
        manifest = Path(json.loads(result.read_text())["manifest"])
        for line in manifest.read_text().splitlines():
            json.loads(line)


def test_a_log_that_nobody_reads_any_more_ends_no_run():
    drains_without_a_reader(*os.pipe(), signal.SIGINT)


def test_a_log_whose_reader_stands_still_stops_no_run():
    for url in ("inproc://", "tcp://127.0.0.1"):
        with Folder() as folder:
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writer, bytes(4096))
            os.set_blocking(writer, True)
            result = folder.path / "result.json"
            words = [FANIN, "run", str(folder.small()), "--log", "debug", "--set", f"network.url={url}", "--json", str(result)]
            with os.fdopen(reader, "rb") as log, subprocess.Popen(words, stderr=writer) as run:
                os.close(writer)
                wait_until(lambda: any(file.stat().st_size > 1 << 20 for file in (folder.path / "out").glob("*.h5")), "files grow")
                seen = b""
                while url == "inproc://" and b"lines are left out here: nobody read the log" not in seen:
                    seen += os.read(log.fileno(), 1 << 20)
                run.send_signal(signal.SIGINT)
                assert run.wait(timeout=LONGEST_S) == 0
            check_balanced(json.loads(result.read_text()))


def test_a_disk_that_stays_full_does_not_keep_the_process():
    for url in ("inproc://", "tcp://127.0.0.1"):
        with Folder() as folder:
            with Run(folder.small(), "--set", f"network.url={url}", "--set", "run.drain=500ms",
                     "--set", "event.deadline=200ms", "--set", "storage.max_file=1MiB") as run:
                run.wait_for_events(500)
                take_away(folder.path / "out")  # no next file can be made
                run.wait_for("No such file or directory")
                run.signal()
                run.wait_for("nothing could be written for")
                result = run.finish(status=1)
            assert "no event was built for" in result["error"], result["error"]
            assert "killed" not in run.text(), run.text()


def test_a_second_signal_stops_at_once_while_the_disk_is_full():
    for url in ("inproc://", "tcp://127.0.0.1"):
        with Folder() as folder:
            with Run(folder.small(), "--set", f"network.url={url}", "--set", "run.drain=1h",
                     "--set", "storage.max_file=1MiB") as run:
                run.wait_for_events(500)
                take_away(folder.path / "out")
                run.wait_for("No such file or directory")
                run.signal()
                run.wait_until_stopping()
                run.signal()
                result = run.finish(status=1)
            assert "second signal" in result["error"], run.text()
            check_balanced(result)


def test_storage_that_fails_ends_the_run_where_that_is_set_and_is_said_once():
    for url in ("inproc://", "tcp://127.0.0.1"):
        with Folder() as folder:
            with Run(folder.small(builders=1), "--set", f"network.url={url}", "--set", "storage.on_full=stop",
                     "--set", "storage.max_file=1MiB") as run:
                run.wait_for_events(500)
                take_away(folder.path / "out")
                result = run.finish(status=1)
            assert "bu0" in result["error"] and "No such file" in result["error"], result["error"]
            check_balanced(result)
            said = [line for line in run.lines if re.search("error +bu0 .*No such file", line)]
            assert len(said) == 1, f"how often the error was said: {said}"


def test_a_run_that_does_not_drain_is_ended():
    with Folder() as folder:
        with Run(folder.small(builders=1), "--set", "run.drain=1s", "--set", "event.deadline=500ms") as run:
            run.wait_for_events(200)
            run.kill("bu0")
            run.wait_for("bu0 died")
            run.signal()
            result = run.finish(status=1)
        assert "no event was built for" in result["error"] and "bu0" in result["error"], result["error"]
        check_balanced(result)


def test_a_run_that_waits_for_its_nodes_can_be_stopped():
    with Folder() as folder:
        with Run(folder.small(), "--node", "evm") as run:
            run.wait_for("waiting for readout unit 'ru0' to start")
            run.signal()
            result = run.finish(status=1)
        assert result["events"]["built"] == 0, "events"


def test_inproc_is_stopped_by_the_same_signals():
    with Folder() as folder:
        with Run(folder.small(), "--set", "network.url=inproc://") as run:
            run.wait_for_events(500)
            run.signal()
            result = run.finish()
            assert "listens at" not in run.text(), run.text()
            assert run.summary().count("as ru0") == 4, "nodes whose memory is ru0's"
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        verify(result)


def test_one_signal_ends_a_node_started_by_hand_before_the_run_begins():
    with Folder() as folder:
        config = folder.small()
        for node in ("ru0", "bu0"):
            with Run(config, "--node", node, "--set", "network.control=tcp://127.0.0.1:1") as run:
                run.wait_for(f"{node} +waits for the event manager at tcp://127.0.0.1:1$")
                assert Path(f"/proc/{run.process.pid}/comm").read_text() == f"fanin:{node}\n", "the process's name"
                run.signal(signal.SIGTERM)
                run.wait_for("left before it")
                result = run.finish()
                assert "event manager decides" not in run.text(), run.text()
            assert result["ok"] and result["nodes"][node]["files" if node == "bu0" else "bytes_sent"] in (0, []), result


def test_a_node_started_by_hand_waits_for_the_event_manager_to_end_the_run():
    with Folder() as folder:
        config = folder.small(readouts=1, builders=1)
        with Run(config, "--node", "evm") as evm:
            control = f"network.control={evm.url()}"
            with Run(config, "--node", "ru0", "--set", control) as ru, \
                    Run(config, "--node", "bu0", "--set", control) as bu:
                ru.wait_for("ru0 +joined run 1")
                bu.wait_for("bu0 +joined run 1")
                evm.wait_for_events(200)
                ru.signal()
                ru.wait_for("the event manager decides when the run is over")
                evm.wait_for_events(200)
                evm.signal()
                result = evm.finish()
                ru.wait_for(r"ru0 +run 1 has ended: \d+ fragments read")
                ru.finish()
                bu.wait_for(rf"bu0 +run 1 has ended: {result['events']['built']} events")
                bu.finish()
        check_balanced(result)
        assert result["events"]["incomplete"] == 0, "incomplete events"


def test_a_node_that_leaves_at_once_is_missed_and_the_run_goes_on():
    with Folder() as folder:
        config = folder.small(readouts=2, builders=1, more='[event]\ndeadline = "300ms"\n[[process]]\n'
                              'name = "most"\nnodes = ["evm", "ru0", "bu0"]\n')
        with Run(config, "--node", "most") as run, \
                Run(config, "--node", "ru1", "--set", f"network.control={run.url()}") as ru:
            run.wait_for_events(200)
            ru.signal()
            ru.wait_for("the event manager decides when the run is over")
            run.wait_for_events(200)
            ru.signal()
            ru.finish(status=1)
            run.wait_for("readout unit 'ru1' is gone")
            run.wait_for_events(200)
            run.signal()
            result = run.finish()
        check_balanced(result)
        assert result["sources"]["0x102"]["missing"] > 0, result["sources"]
