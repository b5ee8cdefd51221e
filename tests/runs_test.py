"""Runs are recorded in the registry of run.registry, and fanin runs shows them."""

import json
import shutil
import signal
import sqlite3

import pytest
from fanin_run import SOURCE, Folder, Run, fanin


class Recorded(Folder):
    """Short runs whose numbers come from a registry."""

    def __enter__(self):
        super().__enter__()
        self.small(readouts=1, builders=1)
        self.registry = self.path / "state" / "runs.sqlite"
        self.words = ("--set", f"run.registry={self.registry}", "--set", "network.url=inproc://")
        return self

    def run(self, *words, status=0):
        with Run(self.path / "run.toml", "--events", "100", *self.words, *words) as run:
            return run.finish(status)

    def runs(self, *words):
        done = fanin("runs", *words, "--registry", self.registry)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def listed(self, *words):
        return json.loads(self.runs("--json", "-", *words))["runs"]


def test_a_run_is_recorded_with_what_it_ran_with_and_how_it_ended():
    with Recorded() as folder:
        folder.run("--set", "run.comment=beam on", "--set", "run.kind=test")
        [run] = folder.listed()
        assert (run["run"], run["kind"], run["comment"], run["reason"]) == (1, "test", "beam on", "run.events")
        assert run["events"]["built"] == 100 and run["balanced"] and run["quality"] == "unknown"
        assert run["reserved"] <= run["begin"] <= run["end"]
        assert "run.events" in folder.runs()
        assert "100 built" in folder.runs("show", "1")
        assert "run 1 begins" in folder.runs("show", "1", "--log")


def test_its_configuration_reproduces_it():
    with Recorded() as folder:
        folder.run("--set", "source.size_mean=300B")
        again = folder.path / "again.toml"
        again.write_text(folder.runs("show", "1", "--configuration"))
        assert 'size_mean = "300B"' in again.read_text()
        with Run(again) as run:
            assert run.finish()["run"] == 2
        assert [one["run"] for one in folder.listed()] == [1, 2]


def test_a_number_is_above_all_in_the_registry_and_in_the_folder():
    with Recorded() as folder:
        folder.run()
        shutil.rmtree(folder.path / "out")
        assert folder.run()["run"] == 2, "the registry knows the first one"
        (folder.path / "out" / "last_run_number").write_text("40\n")
        assert folder.run()["run"] == 41
        assert folder.run("--set", "run.output=discard")["run"] == 42
        assert (folder.path / "out" / "last_run_number").read_text().startswith("41\n"), "nothing went there"
        assert folder.run()["run"] == 43
        assert folder.run("--set", "run.number=50")["run"] == 50
        refused = fanin("run", folder.path / "run.toml", "--events", "1", *folder.words, "--set", "run.number=50")
        assert refused.returncode == 2 and refused.stderr.count("\n") == 1
        assert "run.number" in refused.stderr
        assert [one["run"] for one in folder.listed()] == [1, 2, 41, 42, 43, 50]


def test_a_registry_that_is_not_there_is_named():
    done = fanin("runs", "--registry", "/nowhere/runs.sqlite")
    assert done.returncode == 2 and "there is no registry of runs" in done.stderr and done.stderr.count("\n") == 1


def test_people_say_later_what_a_run_was_worth():
    with Recorded() as folder:
        for _ in range(2):
            folder.run()
        folder.runs("comment", "2", "trips of the HV")
        folder.runs("quality", "2", "bad")
        assert [one["run"] for one in folder.listed("--quality", "bad")] == [2]
        assert '"trips of the HV"' in folder.runs("--csv", "-")
        missing = fanin("runs", "comment", "7", "x", "--registry", folder.registry)
        assert missing.returncode == 2 and "has no run 7" in missing.stderr


def test_a_run_whose_launcher_is_killed_has_no_known_end():
    with Recorded() as folder:
        with Run(folder.path / "run.toml", "--set", f"run.registry={folder.registry}") as run:
            run.wait_for("run 1 begins")
            run.process.send_signal(signal.SIGKILL)
            run.process.wait()
        [entry] = folder.listed()
        assert entry["reason"] == "its end is not known" and entry["end"] == "-"
        assert folder.run()["run"] == 2


def test_a_run_that_fails_before_it_begins_keeps_its_number_and_the_reason():
    with Recorded() as folder:
        folder.run("--set", "network.control=tcp://192.0.2.1:7000", "--set", "network.url=tcp", status=1)
        [entry] = folder.listed()
        assert entry["begin"] == "-" and "192.0.2.1" in entry["reason"]
        assert folder.run()["run"] == 2


@pytest.mark.parametrize("what", ["text", "other", "later", "folder"])
def test_a_run_does_not_start_without_its_registry(what):
    with Recorded() as folder:
        folder.registry.parent.mkdir()
        if what == "text":
            folder.registry.write_text("a text that is no database" * 100)
        elif what == "other":
            with sqlite3.connect(folder.registry) as other:
                other.execute("CREATE TABLE t (x)")
        elif what == "later":
            folder.run()
            with sqlite3.connect(folder.registry) as later:
                later.execute("PRAGMA user_version = 9")
        else:
            folder.registry.mkdir()
        done = fanin("run", folder.path / "run.toml", "--events", "1", *folder.words)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
        assert str(folder.registry) in done.stderr


def test_a_registry_that_another_process_holds_at_the_end_costs_the_run_nothing():
    with Recorded() as folder:
        folder.run()
        with Run(folder.path / "run.toml", "--set", f"run.registry={folder.registry}") as run:
            run.wait_for("run 2 begins")
            holder = sqlite3.connect(folder.registry)
            holder.execute("BEGIN IMMEDIATE")
            run.process.send_signal(signal.SIGINT)
            result = run.finish()
            holder.rollback()
        assert result["balanced"]
        assert "the end of run 2 is not recorded" in run.text()


def test_two_stages_are_one_run():
    with Folder() as folder:
        registry = folder.path / "runs.sqlite"
        files = sorted((SOURCE / "examples/two-stage").glob("*.toml"))
        with Run(*files, "--duration", "2s", "--set", f"run.registry={registry}", cwd=folder.path) as run:
            number = run.finish()["run"]
        done = fanin("runs", "show", number, "--registry", registry, "--configuration")
        assert done.returncode == 0, done.stderr
        parts = done.stdout.split(f"# run {number}: ")[1:]
        assert len(parts) == len(files)
        assert ["duration" in part for part in parts] == ["group" in part.partition("\n")[0] for part in parts], "it ends the groups"
        [entry] = json.loads(fanin("runs", "--registry", registry, "--json", "-").stdout)["runs"]
        assert entry["ok"] and entry["events"]["built"] > 0
