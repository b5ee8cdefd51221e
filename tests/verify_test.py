"""fanin verify of a manifest that cannot be used: the result is the same object as for a run file that cannot be read."""

import json

from fanin_run import Folder, Run, fanin

HEADER = '{"manifest":"version 1","run":1,"run_id":1,"protocol":"push","integrity":"crc32c","started_unix_ns":1,"fanin":"0.1.0"}\n'


def results(path, folder):
    """Of --json FILE and of --json -; both are the same."""
    file = folder.path / "result.json"
    for place in (file, "-"):
        done = fanin("verify", path, "--json", place)
        assert done.returncode == 1, done.stderr
        yield json.loads(done.stdout if place == "-" else file.read_text()), done


def test_a_manifest_that_cannot_be_used_has_a_result_that_says_why():
    with Folder() as folder:
        keys = None
        file = folder.write("run000001_bu0_i1_0001.h5", "no run file")
        for result, _ in results(file, folder):
            keys = result.keys()
        file.unlink()  # a run file beside the manifest belongs to it
        for text, reason in (("", "the file is empty"), ("nonsense\n", ":1: not JSON"), ('{"oops":1}\n', ":1: "),
                             (HEADER.replace('"version 1"', "1"), ":1: a manifest of format 1"),
                             (HEADER, "the run has no files"), (HEADER + '{"file":7,"node":"bu0","incarnation":1}\n', ":2: "),
                             (HEADER + '{"first":2,"end":1,"attempt":1,"node":"bu0","incarnation":1}\n', ":2: ")):
            manifest = folder.write("run000001.manifest.json", text)
            for result, done in results(manifest, folder):
                assert result["good"] is False and result.keys() == keys, result
                assert (result["events"], result["files"]) == (0, 0), result
                [problem] = result["problems"]
                assert problem.startswith(str(manifest)) and reason in problem, problem
                assert done.stderr == f"{problem}\n", done.stderr
        for result, _ in results(folder.path / "run000002.manifest.json", folder):
            assert "cannot be opened" in result["problems"][0], result


def test_a_folder_and_several_manifests_are_verified_run_by_run():
    with Folder() as folder:
        config = folder.small(builders=1)
        manifests = []
        for events in (100, 150):  # their events have the same numbers
            with Run(config, "--events", events, "--set", "network.url=inproc://") as run:
                manifests.append(run.finish()["manifest"])
        for given in ([folder.path / "out"], manifests):
            done = fanin("verify", *given, "--json", folder.path / "result.json")
            result = json.loads((folder.path / "result.json").read_text())
            assert done.returncode == 0 and done.stdout.count("\ngood\n") == 2, done.stdout
            assert all(f"{manifest}\n" in done.stdout for manifest in manifests), done.stdout
            assert result["good"] and (result["events"], result["files"]) == (250, 2), result
        shown = fanin("inspect", folder.path / "out").stdout
        assert "  run 1, " in shown and "  run 2, " in shown, shown
        done = fanin("verify", folder.path)
        assert done.returncode == 1 and "there is no manifest in this folder" in done.stderr, done.stderr
