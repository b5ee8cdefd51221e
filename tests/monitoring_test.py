"""Sampled events are published for whoever looks at them, and a reader costs the run nothing: not a slow one, not a frozen one, not
one that is killed, and not one that talks nonsense."""

import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

from fanin_run import FANIN, LONGEST_S, Folder, Run, check_balanced, fanin, verify, wait_until

FILTER = next(Path(FANIN).resolve().parent.parent.rglob("libfanin_test_plugin_filter.so"), None)


class Reader:
    """fanin subscribe --events; its lines are read as they come, unless it is frozen."""

    def __init__(self, url, *arguments):
        self.process = subprocess.Popen([FANIN, "subscribe", url, "--events", "--quiet", *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.lines = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):  # not what a killed one had begun
                self.lines.append(line[:-1])

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        self.process.stdout.close()

    def wait_for_events(self, count):
        wait_until(lambda: len(self.lines) >= count, f"{count} events, but {self.lines[-3:]}")

    def events(self):
        found = [re.fullmatch(r"run 1 event (\d+): (\d+) fragments, (.*)", line) for line in self.lines]
        assert all(found), self.lines
        return [(int(one[1]), int(one[2]), one[3]) for one in found]


def published_at(run, node):
    return run.wait_for(rf"{node} +publishes events at (\S+)")[1]


def stop(run):
    run.signal()
    result = run.finish()
    check_balanced(result)
    assert result["events"]["incomplete"] == result["events"]["lost"] == 0
    return result


def test_readers_see_one_event_in_so_many_of_each_builder_unit():
    with Folder() as folder:
        config = folder.small(rate="1kHz", builders=1, more="[monitoring]\nevery = 10\n")
        with Run(config) as run:
            url = published_at(run, "bu0")
            assert url.startswith("tcp://127.0.0.1:"), url
            with Reader(url) as one, Reader(url) as other:
                one.wait_for_events(50)
                other.wait_for_events(50)
                result = stop(run)
            assert "readers of events are too slow" not in run.text()
        seen, same = one.events(), other.events()
        assert [event for event, _, _ in seen] == sorted({event for event, _, _ in seen})
        assert all(fragments == 4 and "missing" not in text for _, fragments, text in seen), seen
        first = max(seen[0][0], same[0][0])  # both get the same
        last = min(seen[-1][0], same[-1][0])
        assert [event for event in seen if first <= event[0] <= last] == [event for event in same if first <= event[0] <= last]
        assert (last - first) / 20 < len([event for event in seen if first <= event[0] <= last]) < (last - first) / 5
        bu0 = result["nodes"]["bu0"]
        assert bu0["events_published"] >= len(seen) and bu0["events_skipped"] == 0
        assert verify(result)["events"] == result["events"]["built"]


def test_readers_see_the_streams_that_they_ask_for():
    with Folder() as folder:
        filters = f'[[plugin]]\npath = "{FILTER}"\n[[filter]]\ntype = "test_filter"\nevery = 2\ninto = "b"\n' \
                  '[[stream]]\nname = "a"\n[[stream]]\nname = "b"\nsources = [0x101]\n'
        config = folder.small(builders=1, more=filters + "[monitoring]\nevery = 1\n")
        with Run(config) as run:
            url = published_at(run, "bu0")
            with Reader(url, "--tag", 1) as nothing, Reader(url, "--tag", 2) as some:
                some.wait_for_events(100)
                stop(run)
        assert not nothing.lines
        # One source, and what the filter says.
        assert all(event % 2 == 0 and fragments == 2 for event, fragments, _ in some.events()), some.lines


def test_a_rate_is_kept():
    with Folder() as folder:
        config = folder.small(builders=1, more='[monitoring]\nrate = "20Hz"\n')
        with Run(config) as run:
            with Reader(published_at(run, "bu0")) as reader:
                reader.wait_for_events(10)
                run.wait_for(r"a reader of events, \S+, has connected")
            run.wait_for(r"a reader of events, \S+, has left")
            result = stop(run)
        assert 10 <= result["nodes"]["bu0"]["events_published"] <= 20 * result["duration_s"] + 1, result


def test_a_frozen_reader_misses_events_and_the_run_does_not_wait():
    with Folder() as folder:
        text = folder.small(builders=1, rate="500Hz", more="[monitoring]\nevery = 1\n").read_text()
        text = text.replace('size_mean = "1000B"\nsize_sigma = "500B"', 'size = "16KiB"')
        with Run(folder.write("large.toml", text)) as run:
            url = published_at(run, "bu0")
            with Reader(url) as frozen, Reader(url) as reader:
                frozen.wait_for_events(1)
                reader.wait_for_events(1)
                os.kill(frozen.process.pid, signal.SIGSTOP)
                run.wait_for("readers of events are too slow")
                seen = len(reader.lines)
                reader.wait_for_events(seen + 100)  # the other one goes on
                run.wait_for_events(500)
                result = stop(run)  # also with what waits for the frozen one
        assert result["nodes"]["bu0"]["events_skipped"] > 0
        assert verify(result)["complete"] == result["events"]["built"]


def test_readers_that_are_killed_or_talk_nonsense_cost_nothing():
    with Folder() as folder:
        with Run(folder.small(builders=1, more="[monitoring]\nevery = 1\n")) as run:
            url = published_at(run, "bu0")
            port = int(url.rsplit(":", 1)[1])
            idle = []
            for turn in range(30):
                with Reader(url) as reader:
                    reader.wait_for_events(1)
                    reader.process.kill()
                one = socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S)
                if turn % 2 == 0:
                    one.sendall(os.urandom(500))
                    one.close()
                else:
                    idle.append(one)
            with Reader(url) as reader:  # none of them has a place that a reader needs
                reader.wait_for_events(50)
                result = stop(run)
            for one in idle:
                one.close()
        assert verify(result)["complete"] == result["events"]["built"]


def test_there_is_no_place_for_more_than_sixteen_readers():
    with Folder() as folder:
        with Run(folder.small(builders=1, more="[monitoring]\nevery = 100\n")) as run:
            url = published_at(run, "bu0")
            readers = [Reader(url) for _ in range(16)]
            try:
                for reader in readers:
                    reader.wait_for_events(1)
                with Reader(url) as late:
                    run.wait_for("there are enough subscribers")
                    readers.pop().__exit__()
                    late.wait_for_events(1)  # it has tried again
                stop(run)
            finally:
                for reader in readers:
                    reader.__exit__()


def test_it_is_checked_and_counted_before_the_run():
    with Folder() as folder:
        for more, why in (("[monitoring]\n", "monitoring.every: is missing, or rate"),
                          ('[monitoring]\nrate = "0.0001Hz"\n', "monitoring.rate: is too low"),
                          ("[monitoring]\nevery = 0\n", "monitoring.every"),
                          ("[monitoring]\nevery = 2\n[[builder]]\nmonitoring_url = \"verbs://127.0.0.1\"\n", "is neither tcp:// nor shm://"),
                          ("[[builder]]\nmonitoring_url = \"tcp://127.0.0.1:7000\"\n", "counts only with [monitoring]"),
                          ("[monitoring]\nevery = 2\n[[builder]]\ncount = 2\nmonitoring_url = \"tcp://127.0.0.1:7000\"\n"
                           "[[builder]]\nmonitoring_url = \"tcp://127.0.0.1:7001\"\n", "would both listen on port 7001")):
            done = fanin("check", folder.small(more=more))
            assert done.returncode == 2 and why in done.stderr, (why, done.stderr)
        plain = fanin("check", folder.small(builders=1)).stdout
        shown = fanin("check", folder.small(builders=1, more="[monitoring]\nevery = 2\n")).stdout
        assert "publishes events at tcp://127.0.0.1" in shown and "publishes" not in plain, shown
        total = [float(re.search(r"total memory: ([\d.]+) MiB", text)[1]) for text in (plain, shown)]
        assert 81 <= total[1] - total[0] <= 82, total  # pages, what may wait for 16 readers, and large events
