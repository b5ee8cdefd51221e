"""Sinks of plug-ins: each built event is given to one, and a sink that fails costs what a failing disk would."""

import os
import signal
from pathlib import Path

from fanin_run import FANIN, Folder, Run, check_balanced, fanin

BUILD = Path(FANIN).resolve().parent.parent
PLUGIN = next(BUILD.rglob("libfanin_test_plugin_sink.so"), None)
FILTER = next(BUILD.rglob("libfanin_test_plugin_filter.so"), None)


def sink(more=""):
    return f"""
[storage]
sink = "test_sink"
{more}
[[plugin]]
path = "{PLUGIN}"
"""


def events_of(result):
    """What the sinks have written, by event number, a file each."""
    found = {}
    for name in result["files"]:
        for line in Path(name).read_text().splitlines(keepends=True):
            if not line.endswith("\n"):  # of a builder unit that was killed
                continue
            number, streams, fragments, size, state = line.split()
            assert state == "good", line
            found.setdefault(int(number), []).append((name, int(streams), int(fragments), int(size)))
    return found


def check_all(result, events):
    check_balanced(result)
    assert result["events"]["built"] == events and result["events"]["incomplete"] == result["events"]["lost"] == 0
    found = events_of(result)
    assert sorted(found) == list(range(events))
    return found


def test_a_whole_run_goes_to_it():
    with Folder() as folder:
        config = folder.small(more=sink())
        for number in (1, 2):  # the manifest counts runs
            with Run(config, "--events", 3000) as run:
                result = run.finish()
            assert result["run"] == number and Path(result["manifest"]).exists()
            found = check_all(result, 3000)
            assert all(len(copies) == 1 and copies[0][2] == 4 for copies in found.values())
            assert sum(copies[0][3] for copies in found.values()) == result["bytes_built"]
            assert {Path(name).name for name in result["files"]} == {"bu0_1.txt", "bu1_1.txt"}, result["files"]


def test_it_gets_what_filters_have_accepted():
    with Folder() as folder:
        filters = f'[[plugin]]\npath = "{FILTER}"\n[[filter]]\ntype = "test_filter"\nevery = 3\n[[stream]]\nname = "a"\nsources = [0x100]\n'
        with Run(folder.small(more=sink() + filters), "--events", 1500) as run:
            result = run.finish()
        assert result["events"]["rejected"] == 1000
        for number, copies in check_all(result, 1500).items():
            # One source, and what the filter says.
            assert copies[0][1:3] == ((1, 2) if number % 3 == 0 else (0, 0)), (number, copies)


def test_one_that_throws_or_fails_costs_its_builder_unit_and_no_event():
    for action, said in (("throws", "it threw an exception: as it was told"), ("throws later", "it threw an exception: later"),
                         ("fails", "it broke, as it was told")):
        with Folder() as folder:
            config = folder.small(more=sink(f'action = "{action}"\nat = 500\nnode = "bu0"'))
            with Run(config, "--events", 3000) as run:
                result = run.finish()
                assert f'sink "test_sink": {said}' in run.text(), run.text()
            check_all(result, 3000)
            assert said in result["nodes"]["bu0"]["error"], result["nodes"]["bu0"]


def test_one_that_fails_ends_the_run_where_a_full_disk_would():
    with Folder() as folder:
        config = folder.small(more=sink('on_full = "stop"\naction = "fails"\nat = 500\nnode = "bu0"'))
        with Run(config) as run:
            result = run.finish(status=1)
        built = result["events"]["built"]
        assert built >= 500
        check_all(result, built)


def test_one_that_is_full_is_waited_for():
    with Folder() as folder:
        room = folder.path / "room"
        config = folder.small(more=sink(f'action = "full"\nat = 500\nuntil_path = "{room}"'))
        with Run(config, "--events", 3000) as run:
            run.wait_for('sink "test_sink": there is no room')
            room.touch()
            check_all(run.finish(), 3000)


def test_one_that_stays_full_ends_the_run_in_the_end():
    with Folder() as folder:
        config = folder.small(builders=1, more=sink(f'action = "full"\nat = 500\nuntil_path = "{folder.path}/never"'))
        with Run(config, "--events", 3000, "--set", "run.drain=1s", "--set", "event.deadline=500ms") as run:
            run.wait_for('sink "test_sink": there is no room')
            run.signal()
            result = run.finish(status=1)
        assert "builder unit 'bu0' to store event" in result["error"], result["error"]
        check_balanced(result)
        assert sorted(events_of(result)) == list(range(result["events"]["built"]))


def test_a_builder_unit_that_is_killed_leaves_what_it_has_committed():
    with Folder() as folder:
        with Run(folder.small(more=sink()), "--events", 6000, "--set", "run.restart=true") as run:
            run.wait_for_events(1000)
            os.kill(run.pid("bu0"), signal.SIGKILL)
            result = run.finish()
        found = check_all(result, 6000)
        # The files of a killed process may end with events that were written and not acknowledged: those are there twice.
        twice = [number for number, copies in found.items() if len(copies) > 1]
        assert all(any(Path(copy[0]).name == "bu0_1.txt" for copy in found[number]) for number in twice), twice


def test_a_wrong_one_is_refused_before_the_run():
    with Folder() as folder:
        for more, why in ((sink().replace("test_sink", "sunk"), 'storage.sink: no plug-in has a sink "sunk"'),
                          (sink("att = 3"), "storage.att: unknown key; did you mean at?"),
                          ('[storage]\nsink = "test_sink"\n', 'storage.sink: there is no sink "test_sink"'),
                          (sink(f'[[plugin]]\npath = "{PLUGIN}"'), 'there is a sink of type "test_sink" already')):
            done = fanin("check", folder.small(more=more))
            assert done.returncode == 2 and why in done.stderr, done.stderr
        done = fanin("check", folder.small(more=sink()))
        assert done.returncode == 0 and 'built events go to the sink "test_sink", the manifest to' in done.stdout, done.stdout
