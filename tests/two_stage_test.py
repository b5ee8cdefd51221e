"""Two stages of event building."""

import contextlib
import os
import re
import signal
import socket
import struct
import sys
from pathlib import Path

from support.fanin_run import SOURCE, Folder, Port, Run, check_balanced, fanin, h5py, verify, wait_until

sys.path.append(str(SOURCE / "examples/receive"))
from send_fragments import crc32c  # noqa: E402

# Slice 1 of 2: two sources of super-fragments, and one of its own.
SLICE = """
[run]
output = "{output}"
[network]
url = "tcp://127.0.0.1"
[event]
batch_events = 4
[buffers]
readout = "16MiB"
builder = "48MiB"
huge_pages = "off"
[slice]
number = 1
of = 2
block = 4
[source]
type = "receive"
wait_for_sender = true
fragment_max = "32KiB"
listen = "tcp://127.0.0.1:0"
[[readout]]
source = [{{ id = 0x1000, merged = [1, 2] }}, {{ id = 0x1001, merged = ["7-8"], merged_optional = [8] }}]
[[builder]]
"""
EVENTS = 40
ABSENT = 1 << 31
LOST = 3


def detector_number(own):
    return (own // 4 * 2 + 1) * 4 + own % 4


def payload_of(event, source):
    return struct.pack("<QI", event, source) * 3


def super_fragment(event, sources, missing=(), flags=0, run=1):
    table, payloads = b"", b""
    for source in sources:
        if source in missing:
            table += struct.pack("<III", source, ABSENT, LOST)
            continue
        payload = payload_of(event, source)
        table += struct.pack("<III", source, len(payload), crc32c(payload))
        payloads += payload
    return struct.pack("<4sHHQII", b"FNSF", 1, flags, event, len(sources), run) + table + payloads


def send(url, source, fragments):
    host, port = url.removeprefix("tcp://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(struct.pack("<8sHHI", b"FANINRCV", 1, 0, source))
    for own, (payload, flags, *crc) in enumerate(fragments):
        connection.sendall(struct.pack("<HBBIQII", 0xF4A6, 0, flags, source, own, len(payload), *(crc or [0])) + payload)
    connection.sendall(struct.pack("<HBBIQII", 0xF4A6, 2, 0, source, 0, 0, 0))
    connection.shutdown(socket.SHUT_WR)
    return connection


def test_what_super_fragments_merge_stands_in_files_under_the_detectors_numbers():
    with Folder() as folder:
        with Run(folder.write("slice.toml", SLICE.format(output=folder.path / "out"))) as run:
            urls = [run.wait_for(r"0x100\d.*waits for fragments at (tcp://[^;]*)")[1] for _ in range(2)]
            left = [(super_fragment(detector_number(own), [1, 2], *(([2], 1) if own == 5 else ())), 2 if own == 5 else 0)
                    for own in range(EVENTS)]
            right = [(super_fragment(detector_number(own), [7, 8], [8] if own == 6 else []), 0) for own in range(EVENTS)]
            connections = [send(urls[0], 0x1000, left), send(urls[1], 0x1001, right)]
            result = run.finish()
            for connection in connections:
                connection.close()
        check_balanced(result)
        assert result["events"]["built"] == EVENTS, result["events"]
        assert result["events"]["incomplete"] == 1, "an optional one does not count"
        assert result["events"]["bad"] == 0, "to lack a fragment is no damage"
        found = verify(result)
        assert (found["events"], found["incomplete"]) == (EVENTS, 1), found
        with h5py().File(result["files"][0], "r") as file:
            assert file["events"]["event"].tolist() == [detector_number(own) for own in range(EVENTS)]
            assert file["sources"]["id"].tolist() == [1, 2, 7, 8]
            missing = {(row["event"], row["source"], row["reason"]) for row in file["missing"]}
            assert missing == {(detector_number(5), 2, LOST), (detector_number(6), 8, LOST)}
        shown = fanin("inspect", result["files"][0], "--event", detector_number(5))
        assert "0x2" in shown.stdout and "lost with its readout unit" in shown.stdout, shown.stdout


def check_not_fitting(source, built, dropped):
    assert (source["read"], source["built"], source["dropped"], source["missing"]) == (built + dropped, built, dropped, dropped), source
    assert source["dropped_by_reason"] == {"not_fitting": dropped}, source


def test_super_fragments_that_are_damaged_on_their_way_are_counted_as_in_the_files():
    def damaged(own, at):
        whole = super_fragment(detector_number(own), [1, 2])
        return whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1:], 1, crc32c(whole)

    left = [(super_fragment(detector_number(own), [1, 2]), 0) for own in range(EVENTS)]
    left[3] = damaged(3, 24 + 2 * 12 + 5)  # payload of source 1
    left[5] = (b"x" * len(left[5][0]), 0)  # nothing of a super-fragment, and no checksum
    left[7] = damaged(7, 24)  # the id of source 1
    left[9] = damaged(9, 20)  # the run number
    left[11] = (super_fragment(detector_number(11), [1, 2], [2], 1), 2)  # lacks a source
    right = [(super_fragment(detector_number(own), [7, 8]), 0) for own in range(EVENTS)]
    with Folder() as folder:
        with Run(folder.write("slice.toml", SLICE.format(output=folder.path / "out"))) as run:
            urls = [run.wait_for(r"0x100\d.*waits for fragments at (tcp://[^;]*)")[1] for _ in range(2)]
            connections = [send(urls[0], 0x1000, left), send(urls[1], 0x1001, right)]
            result = run.finish()
            for connection in connections:
                connection.close()
        check_balanced(result)
        events = result["events"]
        assert (events["built"], events["incomplete"], events["bad"]) == (EVENTS, 3, 3), events
        check_not_fitting(result["sources"]["0x1000"], EVENTS - 2, 2)
        listed = [(run["first"], run["count"], run["source"], run["reason"]) for run in result["incomplete_events"]]
        assert listed == [(detector_number(5), 1, "0x1000", "dropped"), (detector_number(7), 1, "0x1000", "dropped"),
                          (detector_number(11), 1, "0x2", "lost")], listed
        with h5py().File(result["files"][0], "r") as file:
            marked = {(row["event"], row["source"]) for row in file["fragments"] if row["flags"] != 0}
            missing = {(row["event"], row["source"]) for row in file["missing"]}
            flagged = {row["event"] for row in file["events"] if row["flags"] & ~1}
        assert flagged == {detector_number(own) for own in (3, 7, 9)}
        assert marked == {(detector_number(3), 1), (detector_number(9), 1), (detector_number(9), 2)}
        assert missing == {(detector_number(own), source) for own in (5, 7) for source in (1, 2)} | {(detector_number(11), 2)}
        done = fanin("verify", result["files"][0], result["manifest"])
        problems = [line for line in done.stdout.splitlines() if line.startswith("problem")]
        assert len(problems) == 1 and "seen and marked when it was built" in problems[0], done.stdout


def test_super_fragments_of_another_run_are_dropped_and_both_runs_are_named():
    with Folder() as folder:
        with Run(folder.write("slice.toml", SLICE.format(output=folder.path / "out"))) as run:
            urls = [run.wait_for(r"0x100\d.*waits for fragments at (tcp://[^;]*)")[1] for _ in range(2)]
            runs = [1, 0, 77]  # 0: it says nothing of it
            left = [(super_fragment(detector_number(own), [1, 2], run=runs[own % 3]), 0) for own in range(EVENTS)]
            right = [(super_fragment(detector_number(own), [7, 8]), 0) for own in range(EVENTS)]
            connections = [send(urls[0], 0x1000, left), send(urls[1], 0x1001, right)]
            result = run.finish()
            for connection in connections:
                connection.close()
        check_balanced(result)
        check_not_fitting(result["sources"]["0x1000"], EVENTS - EVENTS // 3, EVENTS // 3)
        assert result["sources"]["0x1001"]["dropped"] == 0, result["sources"]
        assert "of source 0x1000 dropped: that of event 2 is of run 77, and here run 1 is built" in run.text(), run.text()
        with h5py().File(result["files"][0], "r") as file:
            missing = {(row["event"], row["source"]) for row in file["missing"]}
        assert missing == {(detector_number(own), source) for own in range(2, EVENTS, 3) for source in (1, 2)}


def test_a_slice_that_cannot_be_is_refused():
    with Folder() as folder:
        done = fanin("check", folder.write("slice.toml", SLICE.format(output=folder.path / "out")), "--set", "slice.number=2")
        assert done.returncode == 2, "check"
        assert "slice.number: is not below slice.of = 2" in done.stderr, done.stderr


# Stage 1: what merges `sources`, and deals it to two slices.
GROUP = """
[run]
output = "{output}"
events = {events}
[network]
url = "tcp://127.0.0.1"
[event]
batch_events = 64
assignment = "by-number"
[buffers]
readout = "16MiB"
builder = "48MiB"
huge_pages = "off"
[storage]
sink = "forward"
[slice]
urls = ["tcp://127.0.0.1:{ports[0]}", "tcp://127.0.0.1:{ports[1]}"]
source = {source}
give_up = "{give_up}"
[source]
type = "emulator"
size = "500B"
fragment_max = "4KiB"
rate = "{rate}"
[[readout]]
source = [{{ id = {first}, count = 2 }}]
[[readout]]
source = [{{ id = {second} }}]
[[builder]]
count = 2
"""
SECOND = """
[run]
output = "{output}"
[network]
url = "tcp://127.0.0.1"
[event]
batch_events = 16
[buffers]
readout = "16MiB"
builder = "48MiB"
huge_pages = "off"
[slice]
number = {number}
of = 2
block = 64
[source]
type = "receive"
fragment_max = "32KiB"
wait_for_sender = true
listen = "tcp://127.0.0.1:{port}"
[[readout]]
source = [{{ id = 0x1000, merged = ["0x100-0x101", 0x110] }}, {{ id = 0x1001, merged = ["0x200-0x201", 0x210] }}]
[[builder]]
"""


def stages(folder, ports, events=1000, rate="4kHz", give_up="30s"):
    slices = [folder.write(f"slice{i}.toml", SECOND.format(output=folder.path / f"slice{i}", number=i, port=ports[i].number)) for i in range(2)]
    groups = [folder.write(f"group{i}.toml", GROUP.format(output=folder.path / f"group{i}", events=events, rate=rate, give_up=give_up,
                                                          ports=[port.number for port in ports], source=0x1000 + i,
                                                          first=0x100 * (i + 1), second=0x100 * (i + 1) + 0x10)) for i in range(2)]
    return slices, groups


def dealt_to(number, events, block):
    """Those of so many event numbers that are dealt to this one of two slices."""
    return [event for event in range(events) if event // block % 2 == number]


def numbers_of(result):
    """The event numbers in the files of a slice."""
    numbers = []
    for path in result["files"]:
        with h5py().File(path, "r") as file:
            numbers += file["events"]["event"].tolist()
    return sorted(numbers)


def results_of_whole_slices(*runs):
    """Of slices whose groups have ended; they lack nothing."""
    results = []
    for run in runs:
        run.signal()
        result = run.finish()
        check_balanced(result)
        assert (result["events"]["incomplete"], result["fragments"]["dropped"], result["fragments"]["late"]) == (0, 0, 0), result
        results.append(result)
    return results


def test_what_two_groups_merge_is_built_by_two_slices():
    with Folder() as folder, Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right))
        with Run(slices[0]) as one, Run(slices[1]) as two:
            with Run(groups[0]) as first, Run(groups[1]) as second:
                for result in (first.finish(), second.finish()):
                    check_balanced(result)
                    events = result["events"]
                    assert (events["built"], events["undelivered"], events["lost"]) == (1000, 0, 0), events
                    assert result["files"] == [], "the slices have the files"
            results = results_of_whole_slices(one, two)
        for result in results:
            found = verify(result)
            assert found["complete"] == found["events"] == result["events"]["built"], found
        assert sum(result["events"]["built"] for result in results) == 1000
        assert numbers_of(results[0]) == dealt_to(0, 1000, block=64)
        assert numbers_of(results[1]) == dealt_to(1, 1000, block=64)


def test_a_slice_that_is_killed_loses_its_events_and_the_other_goes_on():
    with Folder() as folder, Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right), events=4000, rate="1kHz", give_up="300ms")
        with Run(slices[0]) as one, Run(slices[1]) as two:
            for run in (one, two):  # else one that starts slowly would be given up, too
                run.wait_for("source 0x1001: waits for fragments")
            with Run(groups[0]) as first, Run(groups[1]) as second:
                one.wait_for_events(60)
                for node in ("evm", "ru0", "bu0"):
                    two.kill(node)
                results = [first.finish(), second.finish()]
                assert "slice 1 at tcp://127.0.0.1:" in first.text() and "is given up" in first.text(), first.text()
            two.finish(1)
            one.signal()
            kept = one.finish()
        for result in results:
            check_balanced(result)
            events = result["events"]
            assert (events["built"], events["lost"]) == (4000, 0), events
            assert 0 < events["undelivered"] <= 1984, "those of slice 1 that it had not announced"
        check_balanced(kept)
        assert numbers_of(kept) == dealt_to(0, 4000, block=64)
        assert verify(kept)["complete"] == kept["events"]["built"], "and they are whole"


def test_a_slice_does_not_wait_for_what_follows_the_only_event_of_the_only_group():
    with Folder() as folder, Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right), events=65)  # a block has 64
        for path in slices:
            path.write_text(path.read_text().replace(', { id = 0x1001, merged = ["0x200-0x201", 0x210] }', ""))
        with Run(slices[0]) as one, Run(slices[1]) as two:
            with Run(groups[0]) as group:
                result = group.finish()
            for run, events in ((one, 64), (two, 1)):
                run.signal()
                assert run.finish()["events"]["built"] == events
        check_balanced(result)
        assert (result["events"]["built"], result["events"]["undelivered"]) == (65, 0), result["events"]


def test_a_group_that_runs_once_more_says_that_its_slices_build_another_run():
    with Folder() as folder, Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right), give_up="300ms")
        with Run(slices[0]) as one, Run(slices[1]) as two:
            for run in (one, two):  # else one that starts slowly would be given up, too
                run.wait_for("source 0x1001: waits for fragments")
            for again in (False, True):
                with Run(groups[0]) as first, Run(groups[1]) as second:
                    for run in (first, second):
                        events = run.finish(1 if again else 0)["events"]
                        assert (events["built"], events["undelivered"]) == (1000, 1000 if again else 0), events
                        assert ("it builds another run 1 than this one" in run.text()) == again, run.text()
            results = results_of_whole_slices(one, two)
        assert sum(result["events"]["built"] for result in results) == 1000


def test_a_group_fails_whose_slices_never_come_and_names_them():
    with Folder() as folder, Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right), events=100, give_up="300ms")
        with Run(slices[0]) as one:  # one slice
            one.wait_for("source 0x1001: waits for fragments")
            with Run(groups[0]) as first, Run(groups[1]) as second:
                for run in (first, second):
                    result = run.finish(1)
                    check_balanced(result)
                    assert result["error"] == f"slice 1 at tcp://127.0.0.1:{right.number} got none of its 36 events: the log says why not", result
                    assert result["events"]["undelivered"] == 36, result["events"]
            results_of_whole_slices(one)
        with Run(groups[0]) as alone:
            result = alone.finish(1)
        for number, events in ((0, 64), (1, 36)):
            assert f"slice {number} at tcp://127.0.0.1:{(left, right)[number].number} got none of its {events} events" in result["error"], result


def test_a_forgotten_group_does_not_take_the_place_of_its_successor():
    with Folder() as folder, Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right))
        number = ("--set", "run.number=6")
        with Run(groups[0], "--set", "run.number=5") as forgotten, Run(slices[0], *number) as one, Run(slices[1], *number) as two:
            forgotten.wait_for("it builds run 6, and this group is in run 5: give both the same `run.number`")
            one.wait_for("source 0x1000: .*other_run.*run 5; here run 6 is built")
            with Run(groups[0], *number) as first, Run(groups[1], *number) as second:
                for run in (first, second):
                    events = run.finish()["events"]
                    assert (events["built"], events["undelivered"]) == (1000, 0), events
            results = results_of_whole_slices(one, two)
        assert sum(result["events"]["built"] for result in results) == 1000
        assert results[0]["sources"]["0x1000"]["counters"]["other_run"] > 0, results[0]["sources"]


def test_of_a_source_that_merges_others_than_its_group_all_is_dropped_and_the_key_is_named():
    with Folder() as folder, Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right))
        text = slices[0].read_text()
        assert '["0x100-0x101", 0x110]' in text
        slices[0].write_text(text.replace('["0x100-0x101", 0x110]', '["0x100-0x102", 0x110]'))
        with Run(slices[0]) as one, Run(slices[1]) as two:
            with Run(groups[0]) as first, Run(groups[1]) as second:
                first.finish()
                second.finish()
            one.signal()
            result = one.finish(status=1)
            results_of_whole_slices(two)
        check_balanced(result)
        events = len(dealt_to(0, 1000, block=64))
        assert (result["events"]["built"], result["events"]["incomplete"]) == (events, events), result["events"]
        check_not_fitting(result["sources"]["0x1000"], 0, events)
        assert (result["sources"]["0x1001"]["built"], result["sources"]["0x1001"]["dropped"]) == (events, 0)
        assert re.search(r'error +bu0 .*of source 0x1000 dropped: that of event \d+ merges 3 sources where the source merges 4: see "merged"',
                         one.text()), one.text()
        assert f"source 0x1000: nothing that it sent was built (0 late, {events} dropped)" in one.text(), one.text()
        assert verify(result)["complete"] == 0


def test_of_a_group_whose_urls_are_in_another_order_all_is_dropped_and_the_keys_are_named():
    with Folder() as folder, Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right), events=1024)
        urls = [f'"tcp://127.0.0.1:{port.number}"' for port in (left, right)]
        text = groups[0].read_text()
        assert ", ".join(urls) in text
        groups[0].write_text(text.replace(", ".join(urls), ", ".join(reversed(urls))))
        with Run(slices[0]) as one, Run(slices[1]) as two:
            with Run(groups[0]) as first, Run(groups[1]) as second:
                first.finish()
                second.finish()
            for number, run in enumerate((one, two)):
                run.signal()
                result = run.finish(status=1)
                check_balanced(result)
                check_not_fitting(result["sources"]["0x1000"], 0, 512)
                assert result["sources"]["0x1001"]["built"] == 512, result["sources"]
                line = re.search(r"of source 0x1000 dropped: that of event (\d+) is of the detector's event (\d+), not (\d+): see "
                                 rf"slice\.number = {number}, slice\.of = 2 .*order of slice\.urls", run.text())
                own, came, expected = map(int, line.groups())
                assert expected == (own // 64 * 2 + number) * 64 + own % 64, line[0]
                assert came == expected + (-64 if number else 64), line[0]


def test_builder_units_that_slices_cannot_be_shared_by_are_refused():
    with Folder() as folder, Port() as left, Port() as right:
        _, groups = stages(folder, (left, right))
        for override, said in (("event.assignment=round-robin", 'it has to be "by-number"'),
                               ("builder.0.count=3", "2 slices cannot be shared evenly by 3 builder units"),
                               ("slice.give_up=1min", "slice.give_up: 60 s is not below run.drain = 60 s"),
                               ("source.fragment_max=100MiB", "a super-fragment of all 3 sources could have"),
                               ("storage.sink=file", 'slice.urls: counts only with storage.sink = "forward"')):
            done = fanin("check", groups[0], "--set", override)
            assert done.returncode == 2 and said in done.stderr, (override, done.stderr)


@contextlib.contextmanager
def example(folder, give_up="5s", deadline="10s"):
    """The files of examples/two-stage, with free ports."""
    files = {path.stem: path.read_text() for path in sorted((SOURCE / "examples/two-stage").glob("*.toml"))}
    with contextlib.ExitStack() as stack:
        for port in sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", "".join(files.values())))):
            free = stack.enter_context(Port()).number
            files = {name: text.replace(f":{port}", f":{free}") for name, text in files.items()}
        for old, new in (('"fanin-data/', f'"{folder.path}/'), ('give_up = "5s"', f'give_up = "{give_up}"'),
                         ('deadline = "10s"', f'deadline = "{deadline}"')):
            files = {name: text.replace(old, new) for name, text in files.items()}
        yield [folder.write(f"{name}.toml", text) for name, text in files.items()]


SMALL = ("--set", "buffers.huge_pages=off")


def check_groups(result):
    for name in ("group0", "group1"):
        group = result["configurations"][name]
        check_balanced(group)
        assert (group["stage"], group["events"]["lost"], group["events"]["incomplete"]) == (1, 0, 0), group["events"]
    return [result["configurations"][name]["events"] for name in ("group0", "group1")]


def check_undelivered(result):
    """What the slices have built without a group: what it says, what it had not come to, and what was lost in the slices."""
    built = {group: result["configurations"][group]["events"]["built"] for group in ("group0", "group1")}
    for group, source in (("group0", "0x1000"), ("group1", "0x1001")):
        of_source = [result["configurations"][name]["sources"][source] for name in ("slice0", "slice1")]
        without, lost = (sum(one[key] for one in of_source) for key in ("missing", "lost"))
        beyond = max(built.values()) - built[group]
        undelivered = result["configurations"][group]["events"]["undelivered"]
        assert undelivered + beyond <= without <= undelivered + beyond + lost, (group, undelivered, beyond, without, lost)


def test_the_example_runs_both_stages():
    with Folder() as folder, example(folder) as files:
        checked = fanin("check", *files)
        assert checked.returncode == 0, checked.stderr
        assert "built events go to 2 slices" in checked.stdout and "slice1.toml: 1 event manager" in checked.stdout
        (folder.path / "slice1").mkdir()
        (folder.path / "slice1/run000041_bu0_i1_0001.h5").touch()  # of an earlier run
        with Run(*files, *SMALL, "--events", 2000) as run:
            result = run.finish()
        assert (result["run"], result["ok"], result["balanced"]) == (42, True, True), result["error"]
        assert [events["built"] for events in check_groups(result)] == [2000, 2000]
        assert [events["undelivered"] for events in check_groups(result)] == [0, 0]
        assert (result["events"]["built"], result["events"]["incomplete"], result["events"]["lost"]) == (2000, 0, 0), result["events"]
        for number in (0, 1):
            slice_ = result["configurations"][f"slice{number}"]
            check_balanced(slice_)
            assert (slice_["stage"], slice_["run"]) == (2, 42)
            assert set(slice_["files"]) <= set(result["files"])
            assert numbers_of(slice_) == dealt_to(number, 2000, block=256)
            found = verify(slice_)
            assert found["complete"] == found["events"] == slice_["events"]["built"], found
            assert (folder.path / f"slice{number}/last_run_number").read_text().startswith("42\n")
        assert "2 groups, 2 slices: ended in good order" in run.text(), run.text()
        refused = fanin("run", *files, "--set", "run.number=42")
        assert refused.returncode == 2 and "--set:1: run.number: run number 42 is not free" in refused.stderr, refused.stderr


def test_both_stages_run_without_a_source_of_a_group():
    with Folder() as folder, example(folder) as files:
        with Run(*files, *SMALL, "--events", 600, "--without", "0x201") as run:
            result = run.finish()
        check_groups(result)
        assert "0x201" not in result["configurations"]["group1"]["sources"], result["configurations"]["group1"]["sources"]
        assert (result["events"]["built"], result["events"]["incomplete"]) == (600, 0), result["events"]
        slice_ = result["configurations"]["slice0"]
        assert verify(slice_)["complete"] == slice_["events"]["built"]
        shown = fanin("inspect", slice_["files"][0]).stdout
        ids = re.findall(r"^ +(0x[0-9a-f]+) ", shown, re.MULTILINE)
        assert ids == ["0x100", "0x101", "0x102", "0x103", "0x200", "0x202", "0x203"], shown
        with Run(files[0], *files[2:], *SMALL, "--events", 600, "--without", "0x1001") as run:
            result = run.finish()
        assert (result["events"]["built"], result["events"]["incomplete"]) == (600, 0), "without group 1"
        refused = fanin("run", *files, "--without", "0x204")
        assert refused.returncode == 2 and '--without: there is no source "0x204"; there are: 0x100, ' in refused.stderr, refused.stderr


def test_a_group_that_has_ended_is_absent_and_not_silent():
    with Folder() as folder, example(folder) as files:
        with Run(*files, *SMALL, "--duration", "1h") as run:
            run.wait_for_events(500)
            pid = run.pid("group1")
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), "group1 has ended")
            run.wait_for_events(2000)
            run.signal()
            result = run.finish()
        assert (result["ok"], result["balanced"]) == (True, True), result["error"]
        check_groups(result)
        for name in ("slice0", "slice1"):
            reasons = {missing["reason"] for missing in result["configurations"][name]["incomplete_events"]}
            assert reasons == {"absent"}, reasons


def test_a_signal_to_all_processes_at_once_drains_both_stages():
    with Folder() as folder, example(folder) as files:
        with Run(*files, *SMALL, "--duration", "1h") as run:
            run.wait_for_events(500)
            pids = re.findall(r" is process (\d+)$", run.text(), re.MULTILINE)
            assert len(pids) == 4 + 2 * 5 + 2 * 4, run.text()
            for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):  # so that nobody ends before it has got its own
                for pid in pids:
                    os.kill(int(pid), number)
            run.signal(signal.SIGTERM)
            result = run.finish()
        assert (result["ok"], result["balanced"]) == (True, True), result["error"]
        for events in check_groups(result):
            assert events["undelivered"] == 0, events
        for name in ("slice0", "slice1"):
            check_balanced(result["configurations"][name])
        assert run.text().count(f"ignoring a signal from process {os.getpid()}") == 4 + 2, "event managers, slices"


def test_a_group_that_ends_before_it_had_events_for_each_slice_holds_up_nobody():
    with Folder() as folder, example(folder, deadline="6s") as files:
        for path, events in zip(files, (100, 600)):  # a block has 256
            path.write_text(path.read_text().replace('duration = "10s"', f"events = {events}"))
        with Run(*files, *SMALL) as run:
            result = run.finish()
        assert (result["ok"], result["balanced"]) == (True, True), result["error"]
        assert [events["built"] for events in check_groups(result)] == [100, 600]
        for number, incomplete in ((0, 244), (1, 256)):
            slice_ = result["configurations"][f"slice{number}"]
            check_balanced(slice_)
            assert (slice_["events"]["incomplete"], slice_["events"]["lost"]) == (incomplete, 0), slice_["events"]
            assert {missing["reason"] for missing in slice_["incomplete_events"]} == {"absent"}
            assert numbers_of(slice_) == dealt_to(number, 600, block=256)


def test_a_group_whose_detector_never_came_keeps_nobody_at_the_end():
    emulator = re.compile(r'type = "emulator"\nrate = .*\nsize = .*\n')
    for waited in ("", r"nothing for 1\d s.*"):  # also for longer than run.drain
        with Folder() as folder, example(folder, give_up="1s", deadline="9s") as files:
            files[0].write_text(emulator.sub('type = "receive"\nwait_for_sender = true\nlisten = "tcp://127.0.0.1:0"\n', files[0].read_text()))
            with Run(*files, *SMALL, "--duration", "1h", "--set", "run.drain=10s") as run:
                run.wait_for(rf"group1 waiting for .*slice \d at tcp://.*{waited} slice0 waiting for readout unit 'ru0': source 0x1000 to have a sender at tcp://")
                run.signal()
                result = run.finish(1)
            assert "slice0 has not begun, since senders are missing" in run.text(), run.text()
            assert result["error"].startswith("group0: the run never began: it waited for readout unit 'ru0': source "), result["error"]
            assert result["events"]["built"] == 0, result["events"]
            group = result["configurations"]["group1"]
            check_balanced(group)
            assert group["events"]["undelivered"] == group["events"]["built"] > 0, group["events"]


def test_a_slice_of_the_example_that_is_killed_ends_the_others_in_order():
    with Folder() as folder, example(folder, give_up="300ms", deadline="1s") as files:
        with Run(*files, *SMALL, "--duration", "1h") as run:
            run.wait_for_events(500)
            for node in ("ru0", "ru1"):  # from here on it announces nothing
                run.kill(f"slice1 +{node}", signal.SIGSTOP)
            run.wait_for_events(800)
            run.kill("slice1")
            run.wait_for(r"slice1 died: killed by signal 9")
            result = run.finish(1)
        assert result["error"] == "slice1: killed by signal 9 (Killed)", result["error"]
        assert result["configurations"]["slice1"]["ok"] is False
        groups = check_groups(result)
        announced = []
        for events in groups:
            of_slice_1 = len(dealt_to(1, events["built"], block=256))
            assert 0 < events["undelivered"] <= of_slice_1, "what slice 1 had not announced"
            announced.append(of_slice_1 - events["undelivered"])
        left = verify({"files": list((folder.path / "slice1").glob("*.h5"))})
        assert left["complete"] == left["events"] <= min(announced), "its last events are lost with it"
        assert result["events"]["undelivered"] == max(events["undelivered"] for events in groups)
        kept = result["configurations"]["slice0"]
        check_balanced(kept)
        assert kept["events"]["lost"] == 0
        assert numbers_of(kept) == dealt_to(0, max(events["built"] for events in groups), block=256)
        assert verify(kept)["events"] == kept["events"]["built"]


def test_each_unit_of_the_example_that_is_killed_comes_back():
    with Folder() as folder, example(folder) as files:
        with Run(*files, *SMALL, "--duration", "1h") as run:
            run.wait_for_events(500)
            for kind, unit in (("builder", "bu1"), ("readout", "ru0")):
                run.kill(f"group0 +{unit}")
                run.wait_for(rf"group0 +evm +{kind} unit '{unit}' has joined again")
            for kind, unit in (("builder", "bu0"), ("readout", "ru1")):
                run.kill(f"slice1 +{unit}")
                run.wait_for(rf"slice1 +evm +{kind} unit '{unit}' has joined again")
            run.wait_for_events(500)
            run.signal()
            result = run.finish()
        assert "by `run.restart` or by hand" in run.text() or "it had nothing to build" in run.text(), run.text()
        for one in result["configurations"].values():
            check_balanced(one)
            assert one["events"]["lost"] == 0, one["events"]


def test_what_dies_within_a_slice_is_lost_there_and_the_groups_go_on():
    with Folder() as folder, example(folder, deadline="6s") as files:
        with Run(*files, *SMALL, "--duration", "1h", "--set", "run.restart=true") as run:
            run.wait_for_events(500)
            run.kill(r"slice1 +ru0")
            run.wait_for(r"slice1 +evm +readout unit 'ru0' has joined")
            run.wait_for_events(1000)
            run.signal()
            result = run.finish()
        check_groups(result)
        check_undelivered(result)
        for number in (0, 1):
            slice_ = result["configurations"][f"slice{number}"]
            check_balanced(slice_)
            assert slice_["nodes"]["ru0"]["starts"] == number + 1
            assert slice_["fragments"]["dropped"] == 0, slice_["fragments"]
            found = verify(slice_)
            assert found["events"] >= slice_["events"]["built"]
            assert found["events"] - found["complete"] == slice_["events"]["incomplete"], "what is lost is said in the files"
            for run_of_events in slice_["incomplete_events"]:
                ends = (run_of_events["first"], run_of_events["last"])
                assert all(event // 256 % 2 == number for event in ends), "the detector's numbers, as in the files"
        assert result["configurations"]["slice0"]["fragments"]["lost"] == 0


def test_a_frozen_readout_unit_of_a_slice_is_named_killed_and_comes_back():
    with Folder() as folder, example(folder, deadline="6s") as files:
        with Run(*files, *SMALL, "--duration", "1h", "--set", "network.dead_after=10s") as run:
            run.wait_for_events(500)
            run.kill("slice1 +ru0", signal.SIGSTOP)
            run.wait_for(r"slice1 +evm +readout unit 'ru0' has joined")
            run.wait_for_events(1000)
            run.signal()
            result = run.finish()
            for line in (r"group\d waiting for .*builder unit 'bu1': slice 1 at tcp://\S+, which has announced nothing for \d+ s",
                         r"slice1 +ru0 was given up: killing it"):  # in either order
                assert re.search(line, run.text()), line
        assert check_groups(result)[0]["undelivered"] > 0, "what it had not sent when the readout unit came back"
        check_undelivered(result)
        slice_ = result["configurations"]["slice1"]
        check_balanced(slice_)
        assert slice_["nodes"]["ru0"]["starts"] == 2, slice_["nodes"]["ru0"]
        found = verify(slice_)
        assert found["events"] >= slice_["events"]["built"]
        assert found["events"] - found["complete"] == slice_["events"]["incomplete"], "what is lost is said in the files"
        assert result["configurations"]["slice0"]["fragments"]["lost"] == 0


def test_a_readout_unit_of_a_slice_that_is_frozen_before_a_sender_comes_is_named_killed_and_comes_back():
    with Folder() as folder, example(folder) as files:
        with Run(*files, *SMALL, "--duration", "1h") as run:
            run.wait_for(r"slice0 +ru1 .*waits for fragments")
            run.kill("slice0 +ru1", signal.SIGSTOP)
            run.wait_for(r"slice0 +ru1 was given up: killing it")
            run.wait_for(r"slice0 +evm +readout unit 'ru1' has joined")
            run.wait_for_events(1000)
            run.signal()
            result = run.finish()
        check_groups(result)
        for name in ("slice0", "slice1"):
            check_balanced(result["configurations"][name])
        assert result["configurations"]["slice0"]["nodes"]["ru1"]["died"] == 1, result["configurations"]["slice0"]["nodes"]


def test_stages_that_do_not_fit_are_refused_in_one_line():
    with Folder() as folder, example(folder) as files:
        group = files[0]
        group.write_text(group.read_text().replace("source = 0x1000", "source = 0x1002"))
        for command in ("check", "run"):
            done = fanin(command, *files)
            assert done.returncode == 2, command
            assert re.fullmatch(r".*group0\.toml:25: slice\.source: 0x1002 is no source that listens at tcp://\S+ in .*slice0\.toml; "
                                r"there are: 0x1000\n", done.stderr), done.stderr
        done = fanin("run", *files, "--node", "evm")
        assert done.returncode == 2 and "--node, --hosts and --testbed are for one configuration" in done.stderr, done.stderr
