"""Instructions per fragment, counted by valgrind: what a noisy machine does not change (docs/benchmarks.md).

Two runs of different length in one process; their difference is the hot path of readout unit, transport, builder unit
and, once per batch, the event manager. A limit is a fifth above what was measured when it was set: a layer that grows
by more has to be looked at.
"""

import os
import re
import shutil
import subprocess

import pytest

from fanin_run import FANIN, Folder

CONFIGURATION = """
[run]
output = "discard"
[network]
url = "{url}"
[event]
batch_delay = "1s"   # batches as full as at full speed, however slow valgrind is
[buffers]
huge_pages = "off"
[[readout]]
source = [{{ id = 1, count = 4, type = "emulator", size = "200B", fragment_max = "4KiB" }}]
[[builder]]
"""
SOURCES = 4
FEW, MANY = 20_000, 60_000
# `rep movsb` counts as an instruction per byte: copies in vectors, on every processor.
VECTORS = "glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000"


def instructions(folder, events):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", FANIN, "run", str(folder / "c.toml"),
               "--events", str(events), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280,
                          env=os.environ | {"GLIBC_TUNABLES": VECTORS})
    collected = re.search(r"Collected : (\d+)", done.stderr)
    assert done.returncode == 0 and collected, done.stderr[-2000:]
    return int(collected[1])


def per_fragment(url):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    with Folder() as folder:
        folder.write("c.toml", CONFIGURATION.format(url=url))
        return (instructions(folder.path, MANY) - instructions(folder.path, FEW)) / ((MANY - FEW) * SOURCES)


def test_per_fragment_in_process():
    count = per_fragment("inproc://")
    print(f"{count:.0f} instructions per fragment of 200 B")
    assert count < LIMIT_INPROC, f"{count:.0f} instructions per fragment of 200 B; the limit is {LIMIT_INPROC}"


LIMIT_INPROC = 550  # measured: 457 (GCC 12, -O2), 197 of them for the two checksums

if __name__ == "__main__":
    main()
