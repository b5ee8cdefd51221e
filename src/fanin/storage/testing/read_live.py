"""Reads a run file that is being written, as a user would, and checks every byte.

For each line on standard input it looks again and answers "N good of M".
"""
import sys

import h5py
import numpy as np


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data.tobytes():
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def count_good(file):
    # Events first: what a row points to was written before it.
    for name in ("events", "missing", "fragments", "bytes"):
        file[name].id.refresh()
    events = file["events"][:]
    fragments = file["fragments"][:]
    data = file["bytes"][:]
    sources = file["sources"]["id"]
    good = 0
    for event in events:
        first = int(event["first_fragment"])
        own = fragments[first : first + int(event["fragment_count"])]
        if not np.array_equal(own["source"], sources) or not (own["event"] == event["event"]).all():
            continue
        payload = [data[int(f["offset"]) : int(f["offset"]) + int(f["size"])] for f in own]
        if all(crc32c(p) == int(f["crc32c"]) for p, f in zip(payload, own)):
            good += 1
    return f"{good} good of {len(events)}"


with h5py.File(sys.argv[1], "r", swmr=True) as run:
    for _ in sys.stdin:
        print(count_good(run), flush=True)
