"""The machine and the build that a table was measured with, and how its processors were used meanwhile."""

import os
import platform
import re
import subprocess
from pathlib import Path


def describe(fanin):
    """As `fanin bench --json` has it, for what is not one of its benches."""
    said = subprocess.run([fanin, "--version"], capture_output=True, text=True).stdout
    processor = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    first, _, build = said.partition("\n")
    return {"commit": first.partition("commit ")[2].removesuffix(")"), "build": build.strip(), "processor": processor[1] if processor else "unknown",
            "cores": len(os.sched_getaffinity(0)), "cache_l2": _cache(2), "cache_l3": _cache(3), "kernel": platform.release()}


def congestion_control():
    """Of the connections of this host that ask for none."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def ticks():
    """Of all processors since they started: idle, taken by other machines, and all."""
    user, nice, system, idle, waiting, *others = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return idle + waiting, others[-1], user + nice + system + idle + waiting + sum(others)


def text(machine):
    return (f"{machine['processor']}, {machine['cores']} cores, caches of {machine['cache_l2']} and {machine['cache_l3']}; Linux "
            f"{machine['kernel'].split('-')[0]}; {machine['build']}")


def _cache(index):
    file = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size")
    return file.read_text().strip() if file.exists() else ""
