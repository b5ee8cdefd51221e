"""What a message costs the software over RDMA, counted by callgrind where there is RDMA (tools/rdma_guest.sh): how fast
that is does not matter.

    tools/rdma_guest.sh 'python3 tests/rdma/cost.py'            # the table of docs/benchmarks.md, some minutes
    tools/rdma_guest.sh 'python3 tests/rdma/cost.py check'      # what ./dev nightly checks

`fanin send` and `fanin receive`: one of them under callgrind, so that the other one waits for it. The difference between a
long and a short run is messages and nothing else. FANIN_RDMA_SCHEME: verbs unless it says more.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

FANIN = os.environ.get("FANIN", "build/release/bin/fanin")
URL = f"{os.environ.get('FANIN_RDMA_SCHEME', 'verbs')}://10.9.0.1:7000"
LONGEST_S = 250  # of one run
CASES = (  # name, options of both ends, of the sender, messages of the short run
    ("64 B, low latency", ("--mode", "low-latency"), ("--size", "64B"), 2000),
    ("64 B, high throughput", (), ("--size", "64B"), 20_000),
    ("1 MiB, a page each", (), ("--size", f"{(1 << 20) - 8}B"), 20),
)
CHECKED = CASES[:1]
# `rep movsb` counts as an instruction per byte: copies in vectors, on every processor.
VECTORS = "glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000"

COPIES = re.compile(r"_*mem(cpy|move|set)|fanin::memory::copy")
PROVIDER = re.compile(r"libibverbs|librdmacm|-rdmav|libfabric")
OURS = re.compile(r"/fanin$|/libfanin|/fanin_\w+\.so$|libstdc\+\+")  # what we ask of the run-time is ours
ALLOCATIONS = re.compile(r"(malloc|calloc|realloc|posix_memalign|aligned_alloc|memalign)(@|$)")
REGISTRATIONS = re.compile(r"ibv_reg_(mr|dmabuf)")
LOCKS = re.compile(r"(__)?pthread_(mutex|spin|rwlock)_\w*lock")
SYSTEM_CALLS = re.compile(r"(__)?(read|write|writev|ioctl|poll|send\w*|recv\w*|sched_yield|syscall|epoll_(ctl|create1))(@|$)")
WAITS = re.compile(r"(__)?epoll_\w*wait2?(@|$)")
SENDS = re.compile(r"fanin::net::\S+::post_sends\(")
RECEIVES = re.compile(r"fanin::net::\S+::post_receives\(")

PARTS = ("transport", "sockets", "copies", "provider", "other")
COUNTS = (  # what, who is called, by whom
    ("posts of sends", SENDS, OURS), ("posts of receives", RECEIVES, OURS), ("allocations", ALLOCATIONS, OURS),
    ("registrations", REGISTRATIONS, OURS), ("locks", LOCKS, OURS), ("system calls", SYSTEM_CALLS, OURS),
    ("waits", WAITS, OURS), ("allocations of the provider", ALLOCATIONS, PROVIDER),
    ("system calls of the provider", SYSTEM_CALLS, PROVIDER),
)
# Of a message; the event loop looks around now and then, and a container grows.
MOST = {"allocations": 0.01, "registrations": 0, "locks": 0, "system calls without waits": 0.1}
SOME = ("posts of sends", "posts of receives", "transport", "provider")  # a count of 0 is one that finds nothing any more


def part(library, source, function):
    if COPIES.match(function):
        return "copies"
    if PROVIDER.search(library):
        return "provider"
    if not OURS.search(library):
        return "other"
    return "transport" if re.search(r"src/fanin/(net|memory)/", source) else "sockets"


def read_profile(file):
    """Instructions by part, and calls by what was counted."""
    result = Counter()
    names = {}
    now = {}  # library, source and function that the lines are about
    callee = ""
    of_callee = False  # the next line of costs
    kinds = {"cfn": "fn", "cob": "ob", "cfi": "fl", "cfl": "fl", "fi": "fl", "fe": "fl"}
    for line in file.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and key in ("ob", "fl", "fn", *kinds):
            kind = kinds.get(key, key)
            number, _, name = value.partition(" ")
            name = names.setdefault((kind, number), name)
            if key == "cfn":
                callee = name
            elif key == kind:
                now[key] = name
        elif key == "calls":
            of_callee = True
            for what, called, caller in COUNTS:
                if called.match(callee) and caller.search(now["ob"]):
                    result[what] += int(value.split()[0])
        elif line and line[0] in "0123456789+-*":
            if not of_callee:
                result[part(now["ob"], now["fl"], now["fn"])] += int(line.split()[1])
            of_callee = False
    return result


def run(end, both, sender, count):
    """The profile of one end."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "callgrind"
        ends = {"receive": [FANIN, "receive", URL, *both], "send": [FANIN, "send", URL, *both, *sender]}
        ends[end] = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={file}", *ends[end]]
        # Into files: valgrind has much to say of each wait, and who reads one pipe would stop the other end.
        said = [open(Path(folder) / name, "w+") for name in ends]
        processes = [subprocess.Popen(["timeout", str(LONGEST_S), *command, "--count", str(count), "--quiet"],
                                      stdout=output, stderr=subprocess.STDOUT,
                                      env=os.environ | {"GLIBC_TUNABLES": VECTORS})
                     for command, output in zip(ends.values(), said)]
        for process in processes:
            process.wait()
        for process, output in zip(processes, said):
            output.seek(0)
            text = output.read()
            output.close()
            assert process.returncode == 0, text
        return read_profile(file)


def per_message(end, both, sender, few):
    short, long = (run(end, both, sender, count) for count in (few, 2 * few))
    return {what: (long[what] - short[what]) / few for what in (*PARTS, *(what for what, *_ in COUNTS))}


def judge(found):
    """What is wrong with the counts of a message, in words; empty if nothing is."""
    # After each wait, signals are looked at.
    counts = found | {"system calls without waits": found["system calls"] - found["waits"]}
    return [f"{counts[what]} {what} a message, not {most}" for what, most in MOST.items() if counts[what] > most] + [
        f"no {what} found" for what in SOME if counts[what] <= 0]


def main():
    check = sys.argv[1:] == ["check"]
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed")
    print("| " + " | ".join(("a message", "end", *PARTS, *(what for what, *_ in COUNTS))) + " |", flush=True)
    for name, both, sender, few in CHECKED if check else CASES:
        for end in ("send", "receive"):
            found = per_message(end, both, sender, few)
            print(f"| {name} | {end} | " + " | ".join(
                f"{found[what]:.0f}" if what in PARTS and found[what] > 20 else f"{found[what]:.3f}" for what in found) + " |",
                flush=True)
            if check and (wrong := judge(found)):
                sys.exit(f"{name}, {end}: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
