"""Instructions per fragment, counted by valgrind: what a noisy machine does not change (docs/benchmarks.md).

Two runs of different length in one process; their difference is the hot path of readout unit, transport, builder unit
and, once per batch, the event manager. A limit is a fifth above what was measured when it was set: a layer that grows
by more has to be looked at.
"""

import collections
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fanin_run import FANIN, SOURCE, Folder

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


# Of lines of builder/ outside builder/shaping/: what shaping costs where there is none.
SHAPING = re.compile(r"\b(shaping|schedules_|grants_|granting_|fills_carriers?|fill_|fill_of|CarrierFill)\b|\bfill( !=|\))")


def costs_by_address(profile):
    """Of a profile with an instruction a line: (object, address) -> instructions, without those of calls."""
    costs, where, inclusive = collections.Counter(), "", False
    for line in profile.read_text().splitlines():
        if line.startswith("ob="):
            where = line[3:]
        elif line.startswith("calls="):
            inclusive = True
        elif line.startswith("0x"):
            address, _, count = line.split()
            costs[where, address] += 0 if inclusive else int(count)
            inclusive = False
    return costs


def is_of_shaping(frame, texts):
    """Of one line of addr2line: "src/fanin/builder/....cpp:63 (discriminator 2)"."""
    found = re.search(r"src/(fanin/builder/[^:]*):(\d+)", frame)
    if found is None:
        return False
    if found[1] not in texts:
        texts[found[1]] = (SOURCE / "src" / found[1]).read_text().splitlines()
    line = int(found[2])
    return found[1].startswith("fanin/builder/shaping/") or SHAPING.search("".join(texts[found[1]][line - 1:line])) is not None


def all_and_of_shaping(folder, events, batch_events):
    """Instructions of fanin's libraries in a run without shaping, and those of them that are there for shaping."""
    profile = folder.path / f"profile-{events}-{batch_events}"
    command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no",
               f"--callgrind-out-file={profile}", FANIN, "run", str(folder.path / "c.toml"), "--events", str(events), "--quiet",
               "--set", f"event.batch_events={batch_events}", "--set", "event.batch_size=8MiB"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=os.environ | {"GLIBC_TUNABLES": VECTORS})
    assert done.returncode == 0, done.stderr[-2000:]
    costs = {place: count for place, count in costs_by_address(profile).items() if "libfanin" in place[0]}
    library = next(name for name, _ in costs if Path(name).name.startswith("libfanin.so"))
    words = "\n".join(address for name, address in costs if name == library)
    frames = subprocess.run(["addr2line", "-a", "-i", "-e", library], input=words, capture_output=True, text=True, check=True).stdout
    texts, shaping, address, counted = {}, 0, 0, True
    for line in frames.splitlines():
        if line.startswith("0x"):
            address, counted = hex(int(line, 16)), False
        elif not counted and is_of_shaping(line, texts):
            shaping += costs[library, address]
            counted = True
    assert texts, f"{library} has no line numbers"
    return sum(costs.values()), shaping


def test_shaping_that_is_off_costs_no_instruction_a_fragment_and_next_to_none_a_data_block():
    if shutil.which("valgrind") is None or shutil.which("addr2line") is None:
        pytest.skip("valgrind or addr2line is not installed")
    with Folder() as folder:
        folder.write("c.toml", CONFIGURATION.format(url="inproc://"))
        large, of_large = all_and_of_shaping(folder, 16_384, 1024)  # 16 batches of four data blocks
        small, of_small = all_and_of_shaping(folder, 16_384, 64)  # 256
        _, of_more = all_and_of_shaping(folder, 32_768, 2048)  # 16
    share = (of_small - of_large) / (small - large)
    a_fragment = (of_more - of_large) / (16_384 * SOURCES)
    print(f"{100 * share:.2f} % of the instructions of a data block, {a_fragment:.4f} instructions per fragment")
    assert 0 < share < 0.02, f"shaping 'none' takes {100 * share:.2f} % of the instructions of a data block"
    # One instruction a fragment would be 1. The rest is a data block more where a page of a source ends.
    assert a_fragment < 0.5, f"shaping 'none' takes {a_fragment:.3f} instructions per fragment"


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
