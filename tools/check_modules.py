#!/usr/bin/env python3
"""Checks the order of the modules: a module includes only modules below it, and builder/ asks the operating system nothing.

Usage: check_modules.py [--selftest] [ROOT]
Prints file:line: what is wrong, one a line; exits 1 if anything is. See docs/workshop.md.
"""

import re
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

# builder/ runs in virtual time: it is handed its clock, loop, random stream and transport (docs/architecture.md).
FORBIDDEN_HEADERS = {
    "thread", "mutex", "shared_mutex", "condition_variable", "future", "stop_token", "semaphore", "latch", "barrier",
    "random", "ctime", "time.h", "pthread.h", "unistd.h", "fcntl.h", "poll.h", "fstream", "filesystem", "iostream",
    "netdb.h", "sys/socket.h", "sys/epoll.h", "sys/eventfd.h", "sys/time.h", "sys/timerfd.h", "sys/types.h",
    "sys/mman.h", "sys/uio.h", "netinet/in.h", "netinet/tcp.h", "arpa/inet.h", "sched.h", "signal.h", "csignal",
}
FORBIDDEN_CODE = [
    (re.compile(r"\b(?:system_clock|steady_clock|high_resolution_clock|utc_clock|file_clock)\s*::\s*now\b"), "a clock"),
    (re.compile(r"\b(?:SystemClock|SteadyClock|MonotonicClock|RealClock)\b"), "a clock of the operating system"),
    (re.compile(r"(?<![\w.>])(?:std::|::)?(?:time|gettimeofday|clock_gettime|clock|rdtsc|__rdtsc|__builtin_ia32_rdtsc)"
                r"\s*\(\s*(?:\)|nullptr|NULL|0\s*\)|&|CLOCK_)"), "a clock"),
    (re.compile(r"\bstd\s*::\s*(?:j?thread|mutex|recursive_mutex|shared_mutex|condition_variable(?:_any)?|async|"
                r"this_thread|lock_guard|unique_lock|scoped_lock|atomic_wait|call_once|thread_local)\b"), "a thread"),
    (re.compile(r"\bthread_local\b"), "a thread"),
    (re.compile(r"\b(?:pthread_\w+|sched_yield|fork|vfork)\s*\("), "a thread or process"),
    (re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep)\b|(?<![\w.>])(?:::)?sleep\s*\("),
     "a sleep"),
    (re.compile(r"(?<![\w.>:])(?:::)?(?:socket|accept4?|bind|recvmsg|sendmsg|epoll_\w+|eventfd|getaddrinfo)\s*\("),
     "a socket"),
    (re.compile(r"\b(?:std\s*::\s*)?(?:random_device|mt19937(?:_64)?|default_random_engine|s?rand|rand_r|drand48|"
                r"arc4random\w*|getrandom)\b\s*[({<]?|\bstd\s*::\s*\w+_distribution\b"),
     "randomness"),
    (re.compile(r"\b(?:std\s*::\s*)?getenv\s*\("), "the environment"),
]


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
        for pattern, what in FORBIDDEN_CODE:
            if pattern.search(line):
                problems.append(f"{say}:{number}: builder/ names {what}: {line.strip()}")
                break


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
        for path in files:
            say = path.relative_to(root)
            text = path.read_text(encoding="utf-8", errors="replace")
            check_includes(text, module, modules, problems, say)
            if module == "builder" and not is_test(path.relative_to(folder)):
                check_determinism(text, problems, say)
    return problems


def selftest():
    good = {
        "src/fanin/base/a.hpp": '#include <chrono>\n',
        "src/fanin/builder/a.cpp": '#include "fanin/base/a.hpp"\n// std::thread in a comment\n'
                                   'auto s = "std::thread";\nauto t = clock.now(); batch.time(0); loop.sleep(1);\n'
                                   'auto x = event_time(3); auto y = it->clock(); auto z = operand(2);\n',
        "src/fanin/builder/a_test.cpp": '#include <thread>\nstd::thread t;\n',
    }
    bad = {
        "src/fanin/base/a.hpp": '#include "fanin/net/url.hpp"\n',
        "src/fanin/net/a.hpp": '#include "b.hpp"\n',
        "src/fanin/attic/a.hpp": '\n',
        "src/fanin/builder/a.cpp": 'auto t = std::chrono::steady_clock::now();\n',
        "src/fanin/builder/b.cpp": '#include <sys/socket.h>\n',
        "src/fanin/builder/c.cpp": 'std::thread t;\n',
        "src/fanin/builder/d.cpp": 'std::this_thread::sleep_for(1ms);\n',
        "src/fanin/builder/e.cpp": 'auto t = ::time(nullptr);\n',
        "src/fanin/builder/f.cpp": 'int r = rand();\n',
        "src/fanin/builder/g.cpp": 'std::random_device d;\n',
        "src/fanin/builder/h.cpp": 'int fd = socket(AF_INET, SOCK_STREAM, 0);\n',
        "src/fanin/builder/i.cpp": 'std::uniform_int_distribution<int> d;\n',
        "src/fanin/builder/j.cpp": 'clock_gettime(CLOCK_MONOTONIC, &t);\n',
    }
    failures = []
    modules = "set(FANIN_MODULES base net builder)\n"
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
    return failures


def main():
    arguments = sys.argv[1:]
    if "--selftest" in arguments:
        problems = selftest()
    else:
        root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
        problems = check(root)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "the modules are in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
