"""The tools behind ./dev demo, ./dev data and ./dev count."""

import hashlib
import json
import stat
import subprocess
import sys

import count_code
import data
import demo


def test_numbers_for_people_have_three_digits_and_a_prefix():
    assert [demo.human(n, "B/s") for n in (0, 7.126, 71.26, 999, 1234567, 5e15)] == [
        "0.00 B/s", "7.13 B/s", "71.3 B/s", "999 B/s", "1.23 MB/s", "5000 TB/s"]


def fake_fanin(folder, run_status=0, verify_status=0, files=("a.h5",)):
    """Stands for the command: writes a result, as a run does."""
    result = json.dumps({"files": list(files), "events": {"built": 1000, "incomplete": 0}, "event_rate_hz": 20000.0,
                         "throughput_bytes_per_s": 123456789})
    script = folder / "fanin"
    script.write_text(f"#!{sys.executable}\nimport sys\n"
                      f"if sys.argv[1] == 'verify': sys.exit({verify_status})\n"
                      f"open(sys.argv[sys.argv.index('--json') + 1], 'w').write({result!r})\n"
                      f"for name in {list(files)!r}: open(name, 'w').write('x')\nsys.exit({run_status})\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def run_demo(folder, monkeypatch, **behaviour):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(demo, "SPACE_NEEDED", 0)
    return demo.demo(fake_fanin(folder, **behaviour))


def test_the_demo_says_what_a_run_has_built(tmp_path, monkeypatch, capsys):
    assert run_demo(tmp_path, monkeypatch, files=("a b.h5", "c.h5")) == ""
    said = capsys.readouterr().out
    assert "1.00 k events built at 20.0 kHz and 123 MB/s" in said, said
    assert "  a b.h5\n  c.h5\n" in said, said


def test_the_demo_fails_with_the_run_and_with_its_verification(tmp_path, monkeypatch):
    for behaviour, words in (({"run_status": 1}, "ended with status 1"), ({"verify_status": 1}, "do not verify"),
                             ({"files": ()}, "names no file")):
        assert words in run_demo(tmp_path, monkeypatch, **behaviour), behaviour
    monkeypatch.setattr(demo, "SPACE_NEEDED", 1 << 80)
    assert "are free here" in demo.demo("fanin")


def test_the_demo_becomes_run_control_of_a_quiet_event_builder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    became = []
    monkeypatch.setattr(demo.os, "execv", lambda *words: became.append(words))
    demo.serve("fanin")
    assert became == [("fanin", ["fanin", "serve", "examples/quiet.toml", "--registry", "fanin-data/runs.sqlite"])]
    assert (tmp_path / "fanin-data").is_dir() and "fanin ctl --registry fanin-data/runs.sqlite" in capsys.readouterr().out


def test_data_are_good_missing_or_different_and_the_first_folder_counts(tmp_path):
    for folder, content in (("first/set", b"wrong"), ("second/set", b"right")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_bytes(content)
    listed = data.sums(f"{hashlib.sha256(b'right').hexdigest()}  set/file\n\n{'0' * 64}  set/none\n")
    first, second = tmp_path / "first", tmp_path / "second"
    assert data.look(listed, [second, first]) == ([second / "set/file"], [], ["set/none"])
    assert data.look(listed, [first, second]) == ([], [first / "set/file"], ["set/none"])


def test_each_set_of_recorded_data_has_directions():
    for _, name in data.sums(data.SUMS.read_text()):
        assert "git clone" in data.advice([name]), name


def test_lines_of_code_are_neither_blank_nor_only_comment():
    assert count_code.lines_of_code('// a\n\nint a; // b\n/* c\n d */\nauto b = "// e";\nauto c = R"(/* f\n\n)";\n') == 4


def test_production_code_and_documents_are_counted_here_and_at_commits(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    code = "// why\nint a;\n"
    for name in ("apps/fanin/main.cpp", "src/fanin/net/a.hpp", "src/fanin/net/virtual/b.cpp", "src/fanin/net/a_test.cpp",
                 "src/fanin/net/testing/c.hpp", "src/fanin/net/conformance/d.hpp", "tests/e.cpp"):
        write(name, code)
    write("docs/a.md", "three small words\n")
    write("CHANGELOG.md", "not counted\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    write("src/fanin/net/a.hpp", code * 2)
    write("README.md", "one\n")
    first, here = count_code.count(tmp_path, "HEAD"), count_code.count(tmp_path)
    assert first == {"apps": 1, "net": 2, count_code.ALL: 3, count_code.DOCUMENTS: 3}
    assert here == {"apps": 1, "net": 3, count_code.ALL: 4, count_code.DOCUMENTS: 4}
    assert count_code.count(tmp_path, "HEAD", ["src/fanin/net/virtual"])["net"] == 1
    assert count_code.table([first, here])[1:3] == ["net                          2         3        +1",
                                                    "lines of code                3         4        +1"]
