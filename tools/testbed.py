#!/usr/bin/env python3
"""A network of hosts on this machine, to measure event building on slow links with a switch between them: ./dev testbed.

Usage: testbed.py up NxM [options]        makes it: a host for the event manager, N for readout and M for builder units
       testbed.py status [--json]         what is up, and what its switch has dropped
       testbed.py enter HOST [COMMAND...] runs a command (a shell) on one of its hosts
       testbed.py down                    ends what runs on its hosts, and removes it

A host is a network namespace. Each of its rails is a veth pair to a bridge, the switch of that rail. Token buckets (tbf) give the
links their rate: the one on the bridge's end has the switch port's buffer, the one on the host's end has Linux's default queue
(pfifo_fast), which is so long that a sender loses nothing by itself. All of it belongs to one process, in namespaces of its own:
nothing is visible on the machine itself, and when the process ends, the kernel removes everything. Without root it is a user
namespace too.

The file `hosts` of its folder (FANIN_TESTBED, otherwise /tmp/fanin-testbed-UID) is a list that `fanin run --hosts` takes.
Exit status: 0 done, 1 it failed, 2 wrong usage.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import select
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ETHERNET = 14  # bytes of a frame's header, which tbf counts
HOST_QUEUE = 1000  # packets, of a host's own link: Linux's default
UNITS_MAX = 64  # of readout units, and of builder units
RAILS_MAX = 8
SYSCTL = Path("/proc/sys/net/ipv4")
RECORDED = ["tcp_congestion_control", "tcp_slow_start_after_idle", "tcp_rmem", "tcp_wmem"]
END_PATIENCE_S = 3
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount"}


class Failure(Exception):
    """One line for the user."""


class Usage(Failure):
    """The same, and the exit status is 2."""


# --- values with units ----------------------------------------------------------------------------------------------
SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
RATES = {"b/s": 1, "kb/s": 10**3, "Mb/s": 10**6, "Gb/s": 10**9, "B/s": 8, "kB/s": 8 * 10**3, "MB/s": 8 * 10**6, "GB/s": 8 * 10**9}


def value(option, text, units, example):
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z/]+)", text)
    if not found or found[2] not in units:
        raise Usage(f'{option}: "{text}" is not a number with a unit ({", ".join(units)}), as in {example}')
    return round(float(found[1]) * units[found[2]])


def within(option, text, number, least, most, words):
    if not least <= number <= most:
        raise Usage(f"{option} {text}: {words}")
    return number


def human(number, units):
    """The largest unit of which it is at least one."""
    name = max((name for name in units if units[name] <= max(number, 1)), key=lambda name: units[name])
    return f"{number / units[name]:.4g} {name}"


def human_size(number):
    """Powers of 1024 where it is a multiple of 1024."""
    binary = number % 1024 == 0
    return human(number, {name: SIZES[name] for name in SIZES if name == "B" or ("i" in name) == binary})


def human_rate(number):
    return human(number, {name: RATES[name] for name in RATES if name.endswith("b/s")})


class Plan:
    """What is to be made, from the words of the command line."""

    def __init__(self, options):
        shape = re.fullmatch(r"(\d+)x(\d+)", options.shape)
        if not shape:
            raise Usage(f'"{options.shape}" is not a number of readout and of builder units, as in 8x8')
        self.readouts, self.builders = (
            within(options.shape, "", int(number), 1, UNITS_MAX, f"1 to {UNITS_MAX} hosts of each kind") for number in shape.groups())
        self.mtu = within("--mtu", options.mtu, options.mtu, 576, 65_521, "576 to 65521 bytes")
        self.rails = within("--rails", options.rails, options.rails, 1, RAILS_MAX, f"1 to {RAILS_MAX}")
        self.rate = within("--rate", options.rate, value("--rate", options.rate, RATES, "200Mb/s"), 10**6, 10**11,
                           "1 Mb/s to 100 Gb/s")
        self.burst = 2 * (self.mtu + ETHERNET)
        self.buffer = within("--switch-buffer", options.switch_buffer, value("--switch-buffer", options.switch_buffer, SIZES, "128KiB"),
                             self.burst, 2**30, f"two frames ({self.burst} B) to 1 GiB")
        self.gso = within("--gso", options.gso, value("--gso", options.gso, SIZES, "64KiB"), self.mtu, 2**16,
                          "one MTU to 64 KiB")

    def hosts(self):
        """Names, in the order of the processes of an event builder."""
        return ["evm", *(f"ru{i}" for i in range(self.readouts)), *(f"bu{i}" for i in range(self.builders))]

    def address(self, host, rail):
        return f"10.88.{rail}.{host + 1}"

    @staticmethod
    def hardware_address(host, rail):
        return f"02:fa:00:00:{rail:02x}:{host + 1:02x}"

    def text(self):
        return (f"{self.readouts}x{self.builders}, {self.rails} rail{'s'[: self.rails > 1]} of {human_rate(self.rate)}, "
                f"switch ports of {human_size(self.buffer)}, MTU {self.mtu}")


# --- in the namespaces ----------------------------------------------------------------------------------------------
def run(*words, given=None):
    """Runs a command of the setup. A line on standard input before it is over means that `up` has ended."""
    if select.select([sys.stdin], [], [], 0)[0]:
        sys.exit(1)
    done = subprocess.run(words, input=given or "", capture_output=True, text=True)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("Command failed")]
        raise Failure(f"{' '.join(words[:3])}: {said[0].strip() if said else f'exit status {done.returncode}'}")


def tbf(device, plan):
    return f"qdisc add dev {device} root handle 1: tbf rate {plan.rate}bit burst {plan.burst} limit {plan.buffer}\n"


def make_switches(plan):
    links, queues = [], []
    for rail in range(plan.rails):
        links.append(f"link add name switch{rail} mtu {plan.mtu} type bridge stp_state 0 mcast_snooping 0\n")
        for index, host in enumerate(plan.hosts()):
            port = f"{host}.{rail}"
            links.append(f"link add name {port} mtu {plan.mtu} type veth peer name rail{rail} mtu {plan.mtu} "
                         f"address {plan.hardware_address(index, rail)} netns {host}\n"
                         f"link set dev {port} gso_max_size {plan.gso} master switch{rail} up\n")
            queues.append(tbf(port, plan))
        links.append(f"link set dev switch{rail} up\n")
    run("ip", "-batch", "-", given="".join(links))
    run("tc", "-batch", "-", given="".join(queues))


def new_mark():
    """An address for `lo` of each of its namespaces. The kernel gives the number of a namespace that has ended to the next one, so
    the number alone does not tell that a namespace belongs to this testbed."""
    return f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"


def mark_link(mark):
    return f"address add {mark}/32 dev lo\n"


def make_host(plan, index, host, mark):
    """Its interfaces. It knows the hardware addresses of all others: no question about them can be lost in a full buffer."""
    inside = ["nsenter", f"--net=/run/netns/{host}"]
    links, queues = ["link set dev lo up\n", mark_link(mark)], []
    for rail in range(plan.rails):
        links.append(f"link set dev rail{rail} gso_max_size {plan.gso} txqueuelen {HOST_QUEUE} up\n"
                     f"address add {plan.address(index, rail)}/24 dev rail{rail}\n")
        links += [f"neighbour add {plan.address(other, rail)} lladdr {plan.hardware_address(other, rail)} dev rail{rail}\n"
                  for other in range(len(plan.hosts())) if other != index]
        queues.append(tbf(f"rail{rail}", plan))
        queues.append(f"qdisc add dev rail{rail} parent 1: pfifo_fast\n")
    # refused where net.ipv4.tcp_allowed_congestion_control lacks it; what holds then is recorded
    settings = f"(echo cubic >{SYSCTL}/tcp_congestion_control) 2>/dev/null || true"
    quiet = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6"  # it would send on its own
    run(*inside, "sh", "-ec", f"if [ -e /proc/sys/net/ipv6 ]; then {quiet}; fi; {settings}")
    run(*inside, "ip", "-batch", "-", given="".join(links))
    run(*inside, "tc", "-batch", "-", given="".join(queues))


def hold(plan):
    """The process to which the testbed belongs. It says "ready" and what it has made, or "failed" and why, and is to be told to
    stay. Without that, as after a kill -9 of `up`, it ends."""
    try:
        run("mount", "-t", "tmpfs", "tmpfs", "/run")  # of this mount namespace: here ip keeps the names of namespaces
        for host in plan.hosts():
            run("ip", "netns", "add", host)
        mark = new_mark()
        run("ip", "-batch", "-", given=mark_link(mark))
        make_switches(plan)
        for index, host in enumerate(plan.hosts()):
            make_host(plan, index, host, mark)
        spaces = {host: os.stat(f"/run/netns/{host}").st_ino for host in plan.hosts()}
    except (Failure, OSError) as failure:
        print("failed " + str(failure), flush=True)
        sys.exit(1)
    spaces |= {"switch": os.stat("/proc/self/ns/net").st_ino}
    print("ready " + json.dumps({"spaces": spaces, "mark": mark}), flush=True)
    if sys.stdin.readline() != "stay\n":
        sys.exit(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    while True:
        signal.pause()  # until it is killed


# --- the folder -----------------------------------------------------------------------------------------------------
def folder():
    return Path(os.environ.get("FANIN_TESTBED") or f"/tmp/fanin-testbed-{os.getuid()}")


@contextlib.contextmanager
def locked():
    """The folder, for this process alone: it says which commands are run, so it must belong to the user."""
    path = folder()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022 or not path.is_dir():
            raise Failure(f"{path} belongs to somebody else, or others may write there: set FANIN_TESTBED to another folder")
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; set FANIN_TESTBED to another folder") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink == 0:  # it has just been removed
            raise BlockingIOError
    except BlockingIOError:
        os.close(lock)
        raise Failure("another ./dev testbed up or down is at work; wait for its end") from None
    try:
        yield path
    finally:
        os.close(lock)


def start_of(pid):
    """When a process began: its number may have been given to another one since."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except OSError:
        return None


def read_state():
    try:
        return json.loads((folder() / "state.json").read_text())
    except (OSError, ValueError):
        return None


def write_file(name, text):
    """All of it or nothing."""
    path = folder() / name
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def is_up(state):
    return state is not None and "hosts" in state and start_of(state["pid"]) == state["start"]


def remove_files():
    for name in ("hosts", "state.json", "hosts.new", "state.new"):
        (folder() / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder().rmdir()


def processes_in(state):
    """Numbers of the processes that run in its network namespaces, which have its mark."""
    if "mark" not in state:
        return []  # its beginning was interrupted: nobody had entered it
    spaces = {f"net:[{inode}]" for inode in state["spaces"].values()}
    mark = re.compile(rf"\b{re.escape(state['mark'])}\n")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if os.readlink(entry / "ns/net") in spaces and mark.search((entry / "net/fib_trie").read_text()):
                found.append(int(entry.name))
    return found


def end(pids):
    """Asks, then forces; returns when they are gone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        limit = time.monotonic() + END_PATIENCE_S
        while (pids := [pid for pid in pids if is_running(pid)]) and time.monotonic() < limit:
            select.select([], [], [], 0.01)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def take_down(state):
    """How many processes were ended that ran on its hosts."""
    mine = processes_in(state)
    users = [pid for pid in mine if pid != state["pid"]]
    end(users)
    if start_of(state["pid"]) == state["start"]:
        os.kill(state["pid"], signal.SIGKILL)
        end([state["pid"]])
    remove_files()
    return len(users)


# --- commands -------------------------------------------------------------------------------------------------------
def entering(state, host):
    """Words that start a command on a host."""
    pid = state["pid"]
    space = f"/proc/{pid}/ns/net" if host == "switch" else f"/proc/{pid}/root/run/netns/{host}"
    user = ["--user", "--preserve-credentials"] if state["user_namespace"] else []
    return ["nsenter", f"--target={pid}", *user, f"--net={space}", "--"]


def hosts_list(plan, state):
    lines = [f"# Testbed {plan.text()}. It is made and removed by ./dev testbed.", "# address, and what starts a process there"]
    for index, host in enumerate(plan.hosts()):
        addresses = ",".join(plan.address(index, rail) for rail in range(plan.rails))
        lines.append(f"{addresses} {shlex.join(entering(state, host))}  # {host}")
    return "\n".join(lines) + "\n"


def recorded_settings(state):
    """Of a host's network namespace: they are part of every result."""
    words = [*entering(state, "evm"), "cat", *(str(SYSCTL / name) for name in RECORDED)]
    said = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    return dict(zip(RECORDED, (" ".join(line.split()) for line in said)))


def check_programs():
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            raise Failure(f"{program} is not installed: apt-get install {package}")


def unshare(plan_words):
    user_namespace = os.geteuid() != 0
    words = ["unshare", *(["--user", "--map-root-user"] if user_namespace else []), "--net", "--mount", "--propagation", "private",
             sys.executable, __file__, "hold", *plan_words]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True)
    return holder, user_namespace


def up(options):
    plan = Plan(options)
    check_programs()
    with locked():
        old = read_state()
        if is_up(old):
            raise Failure(f"a testbed is up already ({old['text']}); ./dev testbed down removes it")
        if old is not None:
            take_down(old)  # what a kill has left of one
            folder().mkdir(mode=0o700, exist_ok=True)
        begun = time.monotonic()
        holder, user_namespace = unshare(sys.argv[2:])
        state = {"pid": holder.pid, "start": start_of(holder.pid), "text": plan.text(), "user_namespace": user_namespace}
        try:
            write_file("state.json", json.dumps(state))
            said = holder.stdout.readline().rstrip("\n")
            if not said.startswith("ready "):
                raise Failure(why_not(said, holder))
            state |= json.loads(said.removeprefix("ready ")) | {"hosts": plan.hosts(), "rails": plan.rails,
                      "rate_bits_per_s": plan.rate, "switch_buffer_bytes": plan.buffer, "host_queue_packets": HOST_QUEUE,
                      "mtu": plan.mtu, "burst_bytes": plan.burst, "gso_bytes": plan.gso}
            state["settings"] = recorded_settings(state)
            state["switch"] = entering(state, "switch")
            write_file("hosts", hosts_list(plan, state))
            write_file("state.json", json.dumps(state, indent=1))
            holder.stdin.write("stay\n")
            holder.stdin.flush()
        except BaseException:
            holder.kill()
            holder.wait()
            remove_files()
            raise
    print(f"up in {time.monotonic() - begun:.1f} s: {state['text']}\n{fallback(state)}"
          f"its hosts: {folder() / 'hosts'}, which fanin run --testbed uses; ./dev testbed enter ru0 ping {plan.address(0, 0)}")


def fallback(state):
    """A line where its hosts do not use cubic."""
    used = state["settings"]["tcp_congestion_control"]
    return "" if used == "cubic" else (
        f"congestion control {used}, not cubic: as root, sysctl -w net.ipv4.tcp_allowed_congestion_control='{used} cubic' allows it\n")


def why_not(said, holder):
    if said.startswith("failed "):
        return said.removeprefix("failed ")
    error = holder.stderr.read().strip().splitlines()
    reason = error[-1] if error else f"it ended with status {holder.wait()}"
    return (f"no network namespace can be made here: {reason}; run it as root, or allow users to make them "
            "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)")


def down(options):
    with locked():
        state = read_state()
        if state is None:
            remove_files()
            print("no testbed is up")
            return
        ended = take_down(state)
    words = "one process that ran on it was" if ended == 1 else f"{ended} processes that ran on it were"
    print(f"down; {words} ended" if ended else "down")


def require_up():
    state = read_state()
    if not is_up(state):
        left = "; ./dev testbed down removes what is left of one" if state else ""
        raise Failure(f"no testbed is up{left}; ./dev testbed up 4x4 makes one")
    return state


def drops(state):
    """Bytes and packets that have left each port of the switch, and packets that it has dropped."""
    words = [*entering(state, "switch"), "tc", "-s", "-j", "qdisc", "show"]
    listed = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return {port["dev"]: {"bytes": port["bytes"], "packets": port["packets"], "dropped": port["drops"]}
            for port in listed if port["kind"] == "tbf"}


def retransmitted(state, host):
    """TCP segments that a host has sent again."""
    said = subprocess.run([*entering(state, host), "cat", "/proc/net/snmp"], capture_output=True, text=True, check=True).stdout
    names, numbers = (line.split()[1:] for line in said.splitlines() if line.startswith("Tcp:"))
    return int(dict(zip(names, numbers))["RetransSegs"])


def status(options):
    state = require_up()
    ports = drops(state)
    again = {host: retransmitted(state, host) for host in state["hosts"]}
    if options.json:
        print(json.dumps(state | {"ports": ports, "retransmitted": again}, indent=1))
        return
    dropped = sum(port["dropped"] for port in ports.values())
    print(f"up, process {state['pid']}: {state['text']}\n"
          f"{state['host_queue_packets']} packets of queue on each host, bursts of {state['burst_bytes']} B, "
          f"GSO of {human_size(state['gso_bytes'])} at most\n" +
          ", ".join(f"{name} {setting}" for name, setting in state["settings"].items()) +
          f"\n{folder() / 'hosts'}: " + " ".join(state["hosts"]) +
          f"\nsince its start the switch has dropped {dropped} packets, and its hosts have sent {sum(again.values())} segments again")


def enter(options):
    state = require_up()
    if options.host not in (*state["hosts"], "switch"):
        raise Usage(f"there is no host \"{options.host}\"; there are {' '.join(state['hosts'])} and switch")
    words = [*entering(state, options.host), *(options.command or [os.environ.get("SHELL", "/bin/sh")])]
    os.execvp(words[0], words)


def parse():
    parser = argparse.ArgumentParser(prog="./dev testbed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command_name", required=True)
    for name in ("up", "hold"):
        maker = commands.add_parser(name)
        maker.add_argument("shape", metavar="NxM")
        maker.add_argument("--rate", default="200Mb/s", help="of each link (200Mb/s)")
        maker.add_argument("--switch-buffer", default="128KiB", help="of each port of the switch (128KiB)")
        maker.add_argument("--mtu", type=int, default=9000, help="bytes (9000)")
        maker.add_argument("--rails", type=int, default=1, help="networks (1)")
        maker.add_argument("--gso", default="64KiB", help="largest segment that a host hands to its link: a carrier (64KiB)")
    commands.add_parser("down")
    shown = commands.add_parser("status")
    shown.add_argument("--json", action="store_true")
    entered = commands.add_parser("enter")
    entered.add_argument("host")
    entered.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main():
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    options = parse()
    if options.command_name == "hold":
        hold(Plan(options))
    try:
        {"up": up, "down": down, "status": status, "enter": enter}[options.command_name](options)
    except Failure as failure:
        print(f"./dev testbed: {failure}", file=sys.stderr)
        sys.exit(2 if isinstance(failure, Usage) else 1)
    except OSError as error:
        print(f"./dev testbed: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(1)


if __name__ == "__main__":
    main()
