"""The number of a run is given once, whatever becomes of its files."""

import contextlib
import fcntl
import shutil
import subprocess

import pytest
from fanin_run import Folder, Run, fanin, wait_until

SHORT = ("--events", "100", "--set", "network.url=inproc://")


class Runs(Folder):
    """Short runs in a folder."""

    def __enter__(self):
        super().__enter__()
        self.small(readouts=1, builders=1)
        self.out = self.path / "out"
        self.file = self.out / "last_run_number"
        return self

    def start(self, *words, **more):
        return Run(self.path / "run.toml", *SHORT, *words, **more)

    def number(self, *words):
        with self.start(*words) as run:
            return run.finish()["run"]

    def refused(self, text, *words, commands=("run", "check"), status=2):
        """In one line; no run begins."""
        before = sorted(self.out.iterdir())
        for command in commands:
            done = fanin(command, self.path / "run.toml", *words, "--set", "network.url=inproc://")
            assert done.returncode == status and done.stderr.count("\n") == 1, f"{done.returncode}: {done.stderr}"
            assert text in done.stderr, done.stderr
        assert sorted(self.out.iterdir()) == before


def test_numbers_go_up_whatever_becomes_of_the_files():
    with Runs() as runs:
        assert [runs.number(), runs.number()] == [1, 2]
        for path in runs.out.glob("run*"):
            path.unlink()
        assert runs.number() == 3, "the files were deleted"
        archive = runs.path / "archive"
        archive.mkdir()
        for path in runs.out.glob("run*"):
            path.rename(archive / path.name)
        assert runs.number() == 4, "the files were moved"
        assert runs.file.read_text().startswith("4\n")
        runs.file.unlink()
        assert runs.number() == 5, "it begins above the run files"


def test_a_number_that_is_asked_for_must_be_free():
    with Runs() as runs:
        assert runs.number("--set", "run.number=7") == 7
        for path in runs.out.glob("run*"):
            path.unlink()
        for number in (5, 7):
            runs.refused(f"--set:1: run.number: run number {number} is not free: 7 is the highest one given in {runs.out}; set a "
                         "higher one", "--set", f"run.number={number}")
        assert [runs.number(), runs.number("--set", "run.number=12"), runs.number()] == [8, 12, 13]


def test_runs_that_start_at_once_get_different_numbers():
    with Runs() as runs:
        numbers = []
        for _ in range(3):
            with contextlib.ExitStack() as stack:
                started = [stack.enter_context(runs.start()) for _ in range(6)]
                numbers += [run.finish()["run"] for run in started]
        assert sorted(numbers) == list(range(1, 19))


def test_a_run_that_is_killed_before_it_begins_has_had_its_number():
    with Runs() as runs:
        for number in range(1, 9):
            with runs.start() as run:
                wait_until(lambda: runs.file.exists() and runs.file.read_text().startswith(f"{number}\n"), "the number is reserved")
                run.process.kill()
                run.process.wait()
            for path in runs.out.glob("run*"):
                path.unlink()
        assert runs.number() == 9


def test_a_run_that_waits_for_its_number_ends_with_one_signal():
    with Runs() as runs:
        runs.number()
        with open(runs.out / ".last_run_number.lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with Run(runs.path / "run.toml", "--set", "network.url=tcp://127.0.0.1") as run:
                run.wait_for("waits for another process that takes a run number")
                run.signal()
                run.finish(status=1)
        assert "stopped while another process had locked" in run.text() and "killed" not in run.text(), run.text()


def test_without_its_number_no_run_begins():
    with Runs() as runs:
        runs.number()
        for text, said in (("", "is empty"), ("what?\n", "does not begin with a number")):
            runs.file.write_text(text)
            runs.refused(f"run.toml:3: run.output: {runs.file} {said}: write the highest run number that was given into its first "
                         "line, or delete it if")
            assert runs.file.read_text() == text, "it is left as it is"
        runs.file.write_text("99\n")
        assert runs.number() == 100
        runs.file.unlink()
        runs.file.mkdir()
        runs.refused(f"run.toml:3: run.output: {runs.file} cannot be read: Is a directory: ")
        runs.file.rmdir()
        (runs.out / ".last_run_number.new/deep").mkdir(parents=True)
        runs.refused(f"{runs.file} cannot be written: File exists: ", commands=["run"], status=1)
        shutil.rmtree(runs.out / ".last_run_number.new")
        assert runs.number() == 101, "it is above the run files"


def test_a_folder_that_cannot_be_written_gives_no_number():
    with Runs() as runs:
        runs.number()
        words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                 f'mount -t tmpfs -o ro tmpfs "{runs.out}" && exec "$@"', "sh"]
        if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
            pytest.skip("this process may not mount a tmpfs")
        with runs.start(prefix=words) as run:
            run.finish(status=2)
        assert f"run.output: folder {runs.out} cannot be written" in run.text() and "Read-only file system" in run.text()
        assert runs.number() == 2


def test_without_files_no_number_is_kept():
    with Runs() as runs:
        for words, number in (((), 1), ((), 1), (("--set", "run.number=7"), 7), (("--set", "run.number=7"), 7)):
            assert runs.number("--set", "run.output=discard", *words) == number
        assert sorted(path.name for path in runs.path.iterdir()) == ["run.toml"]
