#!/usr/bin/env python3
"""What run control costs: processor time and wake-ups of fanin serve, idle, at 1 kHz, and with 20 browsers; and how long a start takes.

Usage: control_cost.py FANIN [SECONDS]     each of the three is measured for so long (10)
./dev bench control runs it. Time that a hypervisor has taken does not count as processor time of a process.
"""

import os
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = 20


def processor_s(process):
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wakes(process):
    return sum(int(line.split()[1]) for line in Path(f"/proc/{process}/status").read_text().splitlines() if "ctxt" in line)


def measure(what, process, seconds):
    used, woken = processor_s(process), wakes(process)
    time.sleep(seconds)
    print(f"{what:<28} {(processor_s(process) - used) / seconds:8.2%} of a core {(wakes(process) - woken) / seconds:8.1f} wake-ups/s", flush=True)


def read(stream):
    try:
        for _ in stream:
            pass
    except OSError:
        pass  # its server has ended


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    os.environ["FANIN"] = str(Path(sys.argv[1]).resolve())
    os.environ["FANIN_SOURCE_DIR"] = str(ROOT)
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests")]
    from served import Served

    seconds = float(sys.argv[2]) if len(sys.argv) == 3 else 10
    with Served() as served:
        measure("idle", served.process.pid, seconds)
        served.ctl("start", "--wait")
        measure("a run of 1 kHz", served.process.pid, seconds)
        for _ in range(BROWSERS):
            threading.Thread(target=read, args=(served.web.events(),), daemon=True).start()
        measure(f"with {BROWSERS} browsers", served.process.pid, seconds)
        [launcher] = served.processes("--control-end")
        measure("the launcher of the run", launcher, seconds)
        served.ctl("stop", "--wait")
        rows = served.api.get("runs/1")["transitions"]
        after = served.api.get("runs/2")["transitions"]
        for first, second in zip(rows, rows[1:]):
            if first["to"] != "running":
                print(f"{first['to']:<12} {second['unix_ms'] - first['unix_ms']:6} ms until {second['to']}")
        print(f"{'draining':<12} {after[-1]['unix_ms'] - rows[-1]['unix_ms']:6} ms until the next run is configured")


if __name__ == "__main__":
    main()
