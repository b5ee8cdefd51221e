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


def event_manager_per_node(nodes):
    """Instructions of the event manager for a batch, divided by the number of readout units."""

    def collected(batches):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                   "--toggle-collect=fanin::builder::EventManager::poll()",
                   "--toggle-collect=fanin::builder::ControlServer::on_event(*",
                   os.path.join(os.path.dirname(FANIN), "..", "tests", "fanin_builder_test"),
                   "--gtest_filter=EventManagerCost.*"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280,
                              env=os.environ | {"FANIN_NODES": str(nodes), "FANIN_BATCHES": str(batches)})
        count = re.search(r"Collected : (\d+)", done.stderr)
        assert done.returncode == 0 and count, done.stdout[-2000:] + done.stderr[-2000:]
        return int(count[1])

    return (collected(4) - collected(2)) / 2 / nodes


def test_a_batch_costs_the_event_manager_instructions_linear_in_the_nodes():
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    few, more, many = (event_manager_per_node(nodes) for nodes in (16, 128, 1024))
    print(f"{few:.0f}, {more:.0f}, {many:.0f} instructions per readout unit and batch with 16, 128, 1024 of them")
    # In a tree of 1024 connections a search takes 6 more steps than in one of 16. Quadratic would be 64 times as many.
    assert more < 1.3 * few and many < 1.3 * few, (few, more, many)


LIMIT_INPROC = 550  # measured: 457 (GCC 12, -O2), 197 of them for the two checksums
