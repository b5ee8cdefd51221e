#!/usr/bin/env python3
"""Checks the order of the modules: a module includes only modules below it, builder/ asks the operating system nothing,
message/, source/, storage/ and builder/ handle no sockets, nothing asks whether it is simulated, the nodes of builder/ include
nothing of each other, and each file's names are in the namespace of its module.

Usage: check_modules.py [ROOT] | --objects OBJECT... | --selftest
With --objects: the object files of builder/, and what they need of the operating system.
Prints file:line: what is wrong, one a line; exits 1 if anything is. See docs/workshop.md.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

def modules_of(root):
    """The modules of CMakeLists.txt, lowest layer first. A module may include itself and those before it."""
    listed = re.search(r"set\(FANIN_MODULES ([^)]*)\)", (root / "CMakeLists.txt").read_text())
    return listed[1].split()


INCLUDE = re.compile(r'^\s*#\s*include\s*["<]fanin/([A-Za-z0-9_]+)/([^">]+)[">]')
ANY_FANIN_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
HEADER_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')

# The folders of the event manager, of the readout unit and of the builder unit. They work together by messages only.
NODES = ("manager", "readout", "building")
BUILDER_INCLUDE = re.compile(r'^\s*#\s*include\s*"fanin/builder/(\w+)/')

# builder/ runs in virtual time: it is handed its clock, loop, random stream and transport (docs/architecture.md).
FORBIDDEN_HEADERS = {
    "thread", "mutex", "shared_mutex", "condition_variable", "future", "stop_token", "semaphore", "latch", "barrier",
    "random", "ctime", "time.h", "pthread.h", "unistd.h", "fcntl.h", "poll.h", "fstream", "filesystem", "iostream",
    "netdb.h", "sys/socket.h", "sys/epoll.h", "sys/eventfd.h", "sys/time.h", "sys/timerfd.h", "sys/types.h",
    "sys/mman.h", "sys/uio.h", "netinet/in.h", "netinet/tcp.h", "arpa/inet.h", "sched.h", "signal.h", "csignal",
}
# These have their connections from net/: message/ transports, the others byte streams too. So they run in virtual time.
WITHOUT_SOCKETS = ("message", "source", "storage", "builder")
SOCKET_HEADERS = {"sys/socket.h", "sys/epoll.h", "poll.h", "sys/poll.h", "sys/select.h", "netinet/tcp.h", "fanin/net/tcp_socket.hpp"}
SOCKET_CALL = re.compile(r"\bepoll_\w+\s*\(|(?<![\w>])::(?:socket|connect|accept4?|bind|listen|recv\w*|send\w*|shutdown|p?poll|[gs]etsockopt)\s*\(")
# A simulation is of the same code: nothing of it asks whether it is simulated.
ASKS = re.compile(r"\bif\s*(?:constexpr\s*)?\([^;{]*simulat", re.I)
SIMULATION = ("fabric", "simulation")
RANDOM = re.compile(r"\b(?:random_device|mt19937(?:_64)?|minstd_rand0?|default_random_engine|\w+_engine|std\s*::\s*\w+_distribution)\b")

BRACE = re.compile(r"\bnamespace\s+(?P<name>[\w:]+)\s*\{|(?P<brace>[{}])")
FORWARD = re.compile(r"\bnamespace\s+[\w:]+\s*\{\s*(?:(?:class|struct)\s+\w+;\s*)+\}")
OUTSIDE = re.compile(r"^\s*(?!namespace\b|inline namespace\b|extern \"|template\s*<>|\}|\s)[^\n]+", re.M)

# What the objects of builder/ may need that is not fanin's: nothing that asks the operating system.
ALLOWED_SYMBOLS = re.compile(
    r"std::(_Rb_tree|__throw_|__detail::|_Hash_bytes|pmr::|__cxx11::basic_string|exception|bad_|length_error|terminate)|fmt::|operator (new|delete)"
    r"|__cxa_|__gxx_personality_v0|_Unwind_Resume|_GLOBAL_OFFSET_TABLE_|(vtable|typeinfo) for (__cxxabiv1|std)::|__popcountdi2$"
    r"|__stack_chk_fail$|(mem(chr|cmp|cpy|move|set)|bcmp|strcmp|strn?len|__libc_single_threaded|abort)$")
# What of fanin asks it.
FORBIDDEN_SYMBOLS = re.compile(
    r"fanin::(MonotonicClock|SharedModule|Descriptor|net::(HostResolver|resolve|resolve_host|tcp|shm|Loop::(Loop|run|turn|wake)))\b")


def code_of(text):
    """The text with comments and the contents of string literals blanked, lines kept."""
    def blank(match):
        token = match.group(0)
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token[0] + re.sub(r"[^\n]", " ", token[1:-1]) + token[-1]
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', blank, text, flags=re.S)


def is_test(path):
    return path.stem.endswith(("_test", "_fuzz", "_bench")) or path.stem.startswith("test_") or "test" in path.parts \
        or "testing" in path.parts


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".hpp", ".cpp", ".h", ".cc"))


def check_includes(text, module, modules, problems, say):
    rank = modules.index(module)
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            other = found.group(1)
            if other not in modules:
                problems.append(f"{say}:{number}: includes fanin/{other}/, which is no module")
            elif modules.index(other) > rank:
                problems.append(f"{say}:{number}: {module}/ includes {other}/, which is above it")
            continue
        found = ANY_FANIN_INCLUDE.match(line)
        if found and not found.group(1).startswith("fanin/"):
            problems.append(f'{say}:{number}: write #include "fanin/<module>/...", not "{found.group(1)}"')


def check_determinism(text, problems, say):
    for number, line in enumerate(text.splitlines(), 1):
        found = HEADER_INCLUDE.match(line)
        if found and found.group(1) in FORBIDDEN_HEADERS:
            problems.append(f"{say}:{number}: builder/ includes <{found.group(1)}>")
    for number, line in enumerate(code_of(text).splitlines(), 1):
        if RANDOM.search(line):
            problems.append(f"{say}:{number}: builder/ names randomness of its own: {line.strip()}")


def check_simulation(text, module, problems, say):
    for found in ASKS.finditer(code_of(text)):
        problems.append(f"{say}:{text.count(chr(10), 0, found.start()) + 1}: {module}/ asks whether it is simulated")


def check_sockets(text, module, problems, say):
    for number, line in enumerate(text.splitlines(), 1):
        found = HEADER_INCLUDE.match(line)
        if found and found.group(1) in SOCKET_HEADERS:
            problems.append(f"{say}:{number}: {module}/ includes {found.group(1)}: byte streams are in net/stream/")
    for number, line in enumerate(code_of(text).splitlines(), 1):
        if SOCKET_CALL.search(line):
            problems.append(f"{say}:{number}: {module}/ handles sockets, which net/stream/ does: {line.strip()}")


def check_nodes(text, node, problems, say):
    for number, line in enumerate(text.splitlines(), 1):
        found = BUILDER_INCLUDE.match(line)
        if found and found.group(1) in NODES and found.group(1) != node:
            problems.append(f"{say}:{number}: builder/{node}/ includes builder/{found.group(1)}/")


def opened_namespaces(code):
    """(line, full name) of each named namespace that the code opens. An unnamed one and a block of anything else have no name."""
    opened, names = [], []
    for found in BRACE.finditer(code):
        if found["brace"] == "}":
            if names:
                names.pop()
            continue
        names.append(found["name"] or "")
        if found["name"]:
            opened.append((code.count("\n", 0, found.start()) + 1, "::".join(filter(None, names))))
    return opened


def check_namespaces(text, path, folders_of_module, problems, say):
    """`path` is relative to src/fanin. The namespace of another module may have forward declarations, and nothing else."""
    module, *folders = path.parts[:-1]
    own = "fanin" if module == "base" else f"fanin::{module}"
    allowed = {own, *("::".join([own, *folders[:n + 1]]) for n in range(len(folders)))}
    allowed.add(f"{own}::{path.stem.removesuffix('_test')}")  # a header whose functions read well with its name: json::parse()
    if is_test(path):
        allowed |= {"::".join([own, *folder.parts]) for folder in folders_of_module}
    code = FORWARD.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), code_of(text))
    for number, name in opened_namespaces(code):
        if name.removesuffix("::detail") not in allowed and not f"{own}::".startswith(f"{name}::"):
            problems.append(f"{say}:{number}: namespace {name} in src/fanin/{path.parent}")
    if path.suffix == ".hpp":
        outside = OUTSIDE.search(without_blocks(code))
        if outside:
            problems.append(f"{say}: outside of a namespace: {outside[0].strip()}")


def without_blocks(code):
    """The code that is in no braces, without what the preprocessor reads."""
    kept, depth = [], 0
    for character in re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.M):
        depth -= character == "}"
        if depth == 0:
            kept.append(character)
        depth += character == "{"
    return "".join(kept)


def check_symbols(listing):
    """Of what `nm -u --demangle` says of the objects of builder/: what it must not need."""
    names = {line.split(maxsplit=1)[1] for line in listing.splitlines() if re.match(r"\s+[Uw] ", line)}
    return [f"builder/ needs {name}" for name in sorted(names)
            if FORBIDDEN_SYMBOLS.search(name) or not ("fanin::" in name.split("(")[0] or ALLOWED_SYMBOLS.match(name))]


def check_objects(files):
    listing = subprocess.run(["nm", "-u", "--demangle", *files], check=True, capture_output=True, text=True).stdout
    problems = check_symbols(listing) if " U " in listing else [f"no symbols in {' '.join(files)}"]
    if problems:
        problems.append("It is handed its clock, loop, random stream and transport. A symbol that asks the operating system nothing "
                        "belongs into ALLOWED_SYMBOLS of tools/check_modules.py.")
    return problems


def check(root):
    problems = []
    modules = modules_of(root)
    base = root / "src" / "fanin"
    for folder in sorted(p for p in base.iterdir() if p.is_dir()) if base.is_dir() else []:
        module = folder.name
        files = sources(folder)
        if module not in modules:
            if files:
                problems.append(f"src/fanin/{module}: no such module; CMakeLists.txt has their order")
            continue
        folders_of_module = {p.relative_to(folder) for p in folder.rglob("*") if p.is_dir()}
        for path in files:
            say = path.relative_to(root)
            text = path.read_text(encoding="utf-8", errors="replace")
            check_includes(text, module, modules, problems, say)
            check_namespaces(text, path.relative_to(base), folders_of_module, problems, say)
            if module not in SIMULATION:
                check_simulation(text, module, problems, say)
            if module in WITHOUT_SOCKETS and not is_test(path.relative_to(folder)):
                check_sockets(text, module, problems, say)
            if module == "builder" and not is_test(path.relative_to(folder)):
                check_determinism(text, problems, say)
                if path.parent.name in NODES:
                    check_nodes(text, path.parent.name, problems, say)
    return problems


def selftest():
    good = {
        "src/fanin/base/a.hpp": '#include <chrono>\n',
        "src/fanin/builder/a.cpp": '#include "fanin/base/a.hpp"\n// std::thread in a comment\n'
                                   'auto s = "std::thread";\nauto t = clock.now(); batch.time(0); loop.sleep(1);\n'
                                   'auto x = event_time(3); auto y = it->clock(); auto z = operand(2);\n',
        "src/fanin/builder/a_test.cpp": '#include <thread>\nstd::thread t;\n',
        "src/fanin/builder/readout/a.cpp": '#include "fanin/builder/readout/a.hpp"\n#include "fanin/builder/control/a.hpp"\n',
        "src/fanin/builder/readout/a_test.cpp": '#include "fanin/builder/manager/a.hpp"\n',
        "src/fanin/source/a.cpp": '#include "fanin/net/stream/stream.hpp"\nauto a = link.send(x); b->poll(); acknowledger.connect(true); listen();\n',
        "src/fanin/source/a_test.cpp": '#include <sys/socket.h>\nauto got = ::recv(a, b, c, 0);\n',
        "src/fanin/base/b.hpp": '#pragma once\n#define A(x) \\\n  x;\nnamespace fanin {\nnamespace detail {\nint a();\n}\nint b();\n}\n',
        "src/fanin/base/json.hpp": 'namespace fanin::json {\nint a();\n}\nextern "C" void b();\n',
        "src/fanin/net/tcp/a.hpp": 'namespace fanin {\nclass B;\n}\nnamespace fanin::base {\nclass C;\n}\nnamespace fanin::net::tcp {\nint a();\n}\n',
        "src/fanin/net/a_test.cpp": 'namespace fanin::net::tcp {\nnamespace {\nint a() { return 1; }\n}\n}\nint main() {}\n',
        "src/fanin/builder/readout/b.hpp": 'namespace fanin::builder {\nnamespace detail {\nint a();\n}\n}\n',
    }
    bad = {
        "src/fanin/base/a.hpp": '#include "fanin/net/url.hpp"\n',
        "src/fanin/source/a.cpp": '#include <sys/epoll.h>\n',
        "src/fanin/storage/a.cpp": '#include "fanin/net/tcp_socket.hpp"\n',
        "src/fanin/source/b.cpp": 'auto got = ::recv(socket, data, size, 0);\n',
        "src/fanin/storage/b.cpp": 'int n = epoll_wait(epoll, events, 1, 0);\n',
        "src/fanin/net/a.hpp": '#include "b.hpp"\n',
        "src/fanin/net/d.cpp": 'void a() { if (world.is_simulated()) return; }\n',
        "src/fanin/attic/a.hpp": '\n',
        "src/fanin/builder/b.cpp": '#include <sys/socket.h>\n',
        "src/fanin/builder/c.cpp": 'std::mt19937_64 engine{1};\n',
        "src/fanin/builder/g.cpp": 'std::random_device d;\n',
        "src/fanin/builder/i.cpp": 'std::uniform_int_distribution<int> d;\n',
        "src/fanin/builder/readout/a.hpp": '#include "fanin/builder/manager/a.hpp"\n',
        "src/fanin/builder/readout/b.hpp": 'namespace fanin::builder::manager {\nint a();\n}\n',
        "src/fanin/builder/d.hpp": 'namespace fanin::net {\nint a();\n}\n',
        "src/fanin/builder/e.hpp": 'namespace fanin::builder {\nnamespace helpers {\nint a();\n}\n}\n',
        "src/fanin/builder/f.hpp": 'namespace fanin::builder {\nint a();\n}\nint b();\n',
        "src/fanin/builder/h.hpp": 'namespace fanin::net {\nclass A;\nint a();\n}\n',
        "src/fanin/net/c.cpp": 'namespace fanin::net::tcp {\nint a() { return 1; }\n}\n',
        "src/fanin/net/tcp/c.hpp": 'namespace net {\nint a();\n}\n',
    }
    needed = ["memcpy", "operator new(unsigned long)", "std::__throw_length_error(char const*)", "__cxa_begin_catch",
              "fanin::net::Timer::cancel()", "fanin::wire::crc32c(std::span<std::byte const>)", "vtable for fanin::builder::Assigner"]
    refused = ["clock_gettime", "time", "std::chrono::_V2::steady_clock::now()", "std::thread::_M_start_thread(void*)", "getenv", "socket",
               "pthread_mutex_lock", "nanosleep", "rand", "getrandom", "std::condition_variable::wait()", "fopen", "write",
               "std::random_device::_M_getval()", "fanin::MonotonicClock::now() const", "fanin::net::resolve(fanin::net::Url const&, bool)",
               "vtable for fanin::MonotonicClock", "fanin::net::Loop::run()", "std::filesystem::status(std::filesystem::path const&)"]
    failures = []
    modules = "set(FANIN_MODULES base net source storage builder)\n"
    with tempfile.TemporaryDirectory() as name:
        for path, text in {"CMakeLists.txt": modules, **good}.items():
            target = Path(name) / "good" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        failures += [f"good tree: {problem}" for problem in check(Path(name) / "good")]
        for number, (path, text) in enumerate(bad.items()):
            root = Path(name) / str(number)
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text)
            (root / "CMakeLists.txt").write_text(modules)
            if not check(root):
                failures.append(f"not noticed in {path}: {text!r}")
    failures += check_symbols("\na.o:\n" + "".join(f"                 U {name}\n" for name in needed))
    failures += [f"not noticed: {name}" for name in refused if not check_symbols(f"                 U {name}\n")]
    return failures


def main():
    arguments = sys.argv[1:]
    if "--selftest" in arguments:
        problems = selftest()
    elif arguments[:1] == ["--objects"]:
        problems = check_objects(arguments[1:])
    else:
        root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
        problems = check(root)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "the modules are in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
