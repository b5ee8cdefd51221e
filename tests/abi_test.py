"""What the libraries export is what docs/abi.md promises, and they need no other libraries than docs/dependencies.md says."""

import os
import re
import subprocess
from pathlib import Path

import abi

BUILD = Path(os.environ["FANIN"]).resolve().parent.parent
RUNTIME = {"libstdc++", "libgcc_s", "libm", "libc", "ld-linux-x86-64", "linux-vdso", "libfmt"}
SOCKETS = RUNTIME | {"libnuma", "libisal"}
BUILDER = SOCKETS | {"libhdf5_serial", "libspdlog", "libfanin_net", "libfanin"}
COMMAND = BUILDER | {"libsqlite3", "libsodium", "libcurl"}


def stems(text):
    """libfmt of libfmt.so.9, libhdf5_serial of libhdf5_serial.so.103."""
    return set(re.findall(r"[\w+-]+(?=\.so[.\d]*\b)", text))


def needed(file):
    listed = subprocess.run(["readelf", "-d", file], check=True, capture_output=True, text=True).stdout
    return stems("\n".join(line for line in listed.splitlines() if "(NEEDED)" in line))


def test_each_library_exports_the_names_of_its_list():
    differences = abi.compare(BUILD)
    assert not differences, "\n".join([
        "the exported names have changed; if that is meant, note it in CHANGELOG.md, and run tools/abi.py build/release --update:",
        *differences])


def test_names_are_compared_without_addresses_and_without_what_the_compiler_may_inline():
    listing = """
0000000000012340 T fanin::net::Loop::Loop(fanin::Clock const&, fanin::net::WaitPolicy)
0000000000012350 T fanin::net::Loop::Loop(fanin::Clock const&, fanin::net::WaitPolicy)
0000000000000300 V vtable for fanin::net::Resolver
0000000000000310 W std::vector<int, std::allocator<int> >::~vector()
"""
    names = ["fanin::net::Loop::Loop(fanin::Clock const&, fanin::net::WaitPolicy)", "vtable for fanin::net::Resolver"]
    assert abi.names_of(listing) == names
    assert abi.changes(names, [names[0], "fanin::new_one()"]) == [f"- {names[1]}", "+ fanin::new_one()"]


def test_the_library_of_the_sockets_needs_nothing_of_hdf5():
    listed = subprocess.run(["ldd", BUILD / "lib/libfanin_net.so"], check=True, capture_output=True, text=True).stdout
    assert stems(listed) <= SOCKETS, stems(listed) - SOCKETS


def test_the_command_is_linked_to_the_documented_libraries_only():
    for file, libraries in (("bin/fanin", COMMAND), ("lib/libfanin.so", BUILDER), ("lib/libfanin_net.so", BUILDER)):
        assert needed(BUILD / file) <= libraries, (file, needed(BUILD / file) - libraries)
