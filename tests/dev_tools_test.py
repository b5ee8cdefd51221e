"""The tools behind ./dev build, fuzz and format: packages, jobs of a build, fuzz targets, the format of files."""

import stat
import sys

import build
import format as formatting
import fuzz
import packages


def script(path, lines):
    path.write_text(f"#!{sys.executable}\n{lines}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# --- packages ----------------------------------------------------------------------------------------------------

APT = """import os, sys
open(os.environ["CALLS"], "a").write(" ".join(word for word in sys.argv[1:] if not word.startswith(("-", "Dpkg", "DPkg", "APT"))) + "\\n")
for word in sys.argv:
    if word.startswith("APT::Status-Fd="):
        os.write(int(word.split("=")[1]), b"dlstatus:1:12.5:Fetching\\npmstatus:ninja:60.2:Unpacking\\nother:x:9:\\n")
print("what apt says")
sys.exit(int(os.environ.get(f"STATUS_{sys.argv[1]}", "0")))"""


def need(folder, monkeypatch, installed, root=True, lists=True, **status):
    """packages.main() with a dpkg-query and an apt-get of its own: its exit status, and apt-get's calls."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    script(programs / "dpkg-query", f"print({installed!r})")
    script(programs / "apt-get", APT)
    (folder / "lists").mkdir(exist_ok=True)
    if lists:
        (folder / "lists/debian_Packages").touch()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("CALLS", str(folder / "calls"))
    for step, number in status.items():
        monkeypatch.setenv(f"STATUS_{step}", str(number))
    monkeypatch.setattr(packages, "BUILD", folder / "build")
    monkeypatch.setattr(packages, "LISTS", folder / "lists")
    monkeypatch.setattr(packages.os, "getuid", lambda: 0 if root else 1000)
    (folder / "calls").write_text("")
    return packages.main(["ninja-build", "ccache"]), (folder / "calls").read_text().splitlines()


def test_a_package_is_missing_unless_it_is_completely_installed():
    listing = "cmake installed\nccache config-files\nninja-build half-installed\ng++ installed\n"
    assert packages.missing(["ccache", "g++", "ninja-build", "cmake", "none", "none"], listing) == [
        "ccache", "ninja-build", "none"]
    assert packages.missing([], "") == []


def test_progress_of_apt_has_a_word_and_a_percentage():
    assert packages.progress("dlstatus:3:12.5:Fetching file 3\n") == ("downloading", 12)
    assert packages.progress("pmstatus:g++:99.9:Configuring g++\n") == ("installing", 99)
    assert packages.progress("pmerror:g++:1.0:no\n") is None
    assert packages.progress("nonsense\n") is None


def test_only_missing_packages_are_installed(tmp_path, monkeypatch, capfd):
    assert need(tmp_path, monkeypatch, "ninja-build installed\nccache installed") == (0, [])
    assert capfd.readouterr().out == ""
    assert need(tmp_path, monkeypatch, "ccache installed") == (0, ["install ninja-build"])
    assert capfd.readouterr().out == ("== installing from Debian: ninja-build\n   downloading 12 %\n   installing 60 %\n")


def test_lists_of_packages_are_read_again_if_there_are_none_or_they_are_old(tmp_path, monkeypatch, capfd):
    assert need(tmp_path, monkeypatch, "", lists=False) == (0, ["update", "install ccache ninja-build"])
    status, calls = need(tmp_path, monkeypatch, "", install=1)
    assert (status, calls) == (1, ["install ccache ninja-build", "update", "install ccache ninja-build"])
    assert "what apt says\n./dev: apt-get install failed (build/packages.log)\n" in capfd.readouterr().err
    assert need(tmp_path, monkeypatch, "", lists=False, update=1)[0] == 1
    assert "apt-get update failed" in capfd.readouterr().err


def test_without_root_the_command_is_printed(tmp_path, monkeypatch, capfd):
    assert need(tmp_path, monkeypatch, "", root=False) == (2, [])
    assert "  sudo apt-get install --no-install-recommends ccache ninja-build\n" in capfd.readouterr().err


def test_without_debian_the_names_are_printed_once(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "BUILD", tmp_path / "build")
    assert packages.main(["ccache"]) == 0
    assert "no Debian" in capfd.readouterr().out
    assert packages.main(["ccache"]) == 0
    assert capfd.readouterr().out == ""


# --- build ---------------------------------------------------------------------------------------------------------

def test_each_compiler_has_a_core_and_memory_of_its_own():
    meminfo = "MemTotal:       99999999 kB\nMemFree:         1000000 kB\nMemAvailable:    {} kB\n".format
    assert build.jobs(8, meminfo(7_500_000)) == 5
    assert build.jobs(2, meminfo(7_500_000)) == 2
    assert build.jobs(2, meminfo(1_000)) == 1
    assert build.jobs(3, "") == 3


def test_a_build_is_configured_again_if_it_lacked_packages_of_the_tests(tmp_path):
    cache, rules = tmp_path / "CMakeCache.txt", tmp_path / "build.ninja"
    found = "GTest_DIR:PATH=/usr/lib/cmake/GTest\nFANIN_ZMQ_INCLUDE:PATH=/usr/include\nMPI_C_COMPILER:FILEPATH=/usr/bin/mpicc\n"
    build.look_again(tmp_path)  # never configured
    for text, kept in ((found, True), (found.replace("/usr/include", "FANIN_ZMQ_INCLUDE-NOTFOUND"), False),
                       (found + "OTHER_DIR:PATH=OTHER_DIR-NOTFOUND\n", True)):
        cache.write_text(text)
        rules.touch()
        build.look_again(tmp_path)
        assert rules.exists() == kept, text


# --- fuzz targets --------------------------------------------------------------------------------------------------

def test_a_fuzz_target_that_passes_gives_its_last_numbers(tmp_path):
    target = script(tmp_path / "fanin_fuzz_page",
                    "import sys; print('#2 INITED cov: 1\\n#512 DONE   cov: 7 ft: 9', file=sys.stderr); print(sys.argv[1])")
    assert fuzz.run(target, 3, tmp_path) == (True, f"   {'page':<28} #512 DONE   cov: 7 ft: 9")
    assert (tmp_path / "build/fuzz/corpus/page").is_dir()
    assert "-max_total_time=3" in (tmp_path / "build/fuzz/page.log").read_text()


def test_a_fuzz_target_that_fails_gives_the_end_of_its_log(tmp_path):
    target = script(tmp_path / "fanin_fuzz_page", "print(*range(100), sep='\\n'); raise SystemExit(1)")
    passed, lines = fuzz.run(target, 3, tmp_path)
    assert not passed
    assert lines.splitlines()[0] == "60"
    assert lines.splitlines()[-1].split() == ["page", "FAILED", "(build/fuzz/found/)"]


def test_only_executables_are_fuzz_targets(tmp_path, monkeypatch, capfd):
    script(tmp_path / "fanin_fuzz_b", "")
    script(tmp_path / "fanin_fuzz_a", "")
    script(tmp_path / "other", "")
    (tmp_path / "fanin_fuzz_c.log").touch()
    (tmp_path / "fanin_fuzz_folder").mkdir()
    assert [target.name for target in fuzz.targets(tmp_path)] == ["fanin_fuzz_a", "fanin_fuzz_b"]
    monkeypatch.setattr(fuzz, "ROOT", tmp_path)
    assert fuzz.main("release") == 1
    assert "no fuzz targets in build/release/fuzz" in capfd.readouterr().err


# --- format --------------------------------------------------------------------------------------------------------

def test_places_that_differ_are_counted_by_file():
    assert formatting.places(
        "src/a.cpp:3:7: warning: code should be clang-formatted [-Wclang-format-violations]\n"
        "int  a;\n      ^\n"
        "src/a.cpp:9:1: warning: code should be clang-formatted [-Wclang-format-violations]\n"
        "src/b.hpp:1:1: warning: code should be clang-formatted [-Wclang-format-violations]\n") == {
            "src/a.cpp": 2, "src/b.hpp": 1}


def test_only_cpp_files_of_the_tree_that_exist_are_formatted(tmp_path, monkeypatch):
    monkeypatch.setattr(formatting, "ROOT", tmp_path)
    (tmp_path / "src/deep").mkdir(parents=True)
    for file in ("src/deep/a.cpp", "src/b.hpp", "src/c.md", "d.cpp"):
        (tmp_path / file).touch()
    assert [file for file in ("src/deep/a.cpp", "src/b.hpp", "src/c.md", "d.cpp", "src/gone.cpp")
            if formatting.is_ours(file)] == ["src/deep/a.cpp", "src/b.hpp"]


def test_a_check_names_the_files_and_changes_nothing(tmp_path, monkeypatch, capfd):
    script(tmp_path / "clang-format", "import sys\nfor file in sys.argv[2:]:\n"
           "  if 'bad' in file: print(f'{file}:1:1: warning: code should be clang-formatted', file=sys.stderr)")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(formatting, "all_files", lambda: ["src/bad.cpp", "src/good.cpp"])
    monkeypatch.setattr(formatting, "ROOT", tmp_path)
    assert formatting.main(["--check"]) == 1
    said = capfd.readouterr().out
    assert "      1 src/bad.cpp\n" in said and "good" not in said
    monkeypatch.setattr(formatting, "all_files", lambda: ["src/good.cpp"])
    assert formatting.main(["--check"]) == 0
