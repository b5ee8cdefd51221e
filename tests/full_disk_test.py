"""A disk that is full when a run ends: the run says so, and every process ends by itself."""

import subprocess

import pytest
from fanin_run import Folder, Run, check_balanced, verify


def small_disk(path, size="6m"):
    """Words before a command: it finds a small file system there, as long as it lasts."""
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
             f'mount -t tmpfs -o size={size} tmpfs "{path}" && exec "$@"', "sh"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"this process may not mount a tmpfs: {tried.stderr.strip()}")
    return words


# run.drain is longer than the launcher waits before it kills (10 s).
@pytest.mark.parametrize("url", ["inproc://", "tcp://127.0.0.1"])
def test_a_disk_that_is_full_until_the_end_is_named_and_kills_nobody(url):
    with Folder() as folder:
        (folder.path / "out").mkdir()
        prefix = small_disk(folder.path / "out")
        with Run(folder.small(), "--set", f"network.url={url}", "--set", "run.drain=11s", prefix=prefix) as run:
            run.wait_for("No space left on device; nothing is lost")
            run.wait_for(r"the disk, which is full \(write ")
            run.signal()
            result = run.finish(status=1)
        assert "no event was built for" in result["error"] and "No space left on device" in result["error"], result["error"]
        assert f"nothing could be written for 11 s (run.drain): the disk of {folder.path}/out is full" in run.text(), run.text()
        assert "killed" not in run.text(), run.text()
        check_balanced(result)
        assert result["events"]["lost"] > 0, result["events"]


def test_a_file_that_may_not_grow_any_more_is_followed_by_another():
    with Folder() as folder:
        with Run(folder.small(builders=1, rate="10kHz"), prefix=["prlimit", "--fsize=25165824"]) as run:
            run.wait_for("File too large; nothing is lost; trying again in another file")
            run.signal()
            result = run.finish()
        check_balanced(result)
        assert result["nodes"]["bu0"]["starts"] == 1, result["nodes"]
        assert len(result["files"]) > 1, result["files"]
        found = verify(result)
        assert (found["events"], found["complete"]) == (result["events"]["built"], result["events"]["built"]), found
