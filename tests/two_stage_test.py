"""Two stages of event building."""

import socket
import struct
import sys

from support.fanin_run import SOURCE, Folder, Run, check_balanced, fanin, h5py, verify

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


def super_fragment(event, sources, missing=(), flags=0):
    table, payloads = b"", b""
    for source in sources:
        if source in missing:
            table += struct.pack("<III", source, ABSENT, LOST)
            continue
        payload = payload_of(event, source)
        table += struct.pack("<III", source, len(payload), crc32c(payload))
        payloads += payload
    return struct.pack("<4sHHQII", b"FNSF", 1, flags, event, len(sources), 9) + table + payloads


def send(url, source, fragments):
    host, port = url.removeprefix("tcp://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(struct.pack("<8sHHI", b"FANINRCV", 1, 0, source))
    for own, (payload, flags) in enumerate(fragments):
        connection.sendall(struct.pack("<HBBIQII", 0xF4A6, 0, flags, source, own, len(payload), 0) + payload)
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


def test_a_slice_that_cannot_be_is_refused():
    with Folder() as folder:
        done = fanin("check", folder.write("slice.toml", SLICE.format(output=folder.path / "out")), "--set", "slice.number=2")
        assert done.returncode == 2, "check"
        assert "slice.number: is not below slice.of = 2" in done.stderr, done.stderr
