"""A builder unit on two networks, one of which is lost: in a network namespace, where addresses come and go."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))
from fanin_run import Folder, Run, check, check_balanced, check_equal, main, verify  # noqa: E402

INSIDE = "FANIN_TEST_NAMESPACE"
os.environ["PATH"] += ":/usr/sbin:/sbin"

if INSIDE not in os.environ:
    alone = ["unshare", "--map-root-user", "--net"]
    if any(shutil.which(tool) is None for tool in ("unshare", "ip")) or subprocess.run([*alone, "true"]).returncode != 0:
        print("no network namespace here: it needs unshare, ip (iproute2) and a kernel that allows it")
        sys.exit(77)
    os.execvpe("unshare", [*alone, sys.executable, *sys.argv], os.environ | {INSIDE: "1"})


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def test_a_run_survives_the_loss_of_one_of_two_rails():
    ip("link", "set", "lo", "up")
    for rail in ("10.9.0.1/32", "10.8.0.1/32"):
        ip("address", "add", rail, "dev", "lo")
    with Folder() as folder:
        config = folder.small()
        config.write_text(config.read_text().replace("[[builder]]", """[[builder]]
url = ["tcp://10.9.0.1", "tcp://10.8.0.1"]"""))
        with Run(config, "--set", "event.deadline=2min", "--duration", "110s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(1000)
            ip("address", "delete", "10.8.0.1/32", "dev", "lo")
            run.wait_for(r"tcp://10\.8\.0\.1:\d+ is closed, trying tcp://10\.9\.0\.1:\d+ next")
            run.wait_for_events(1000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        check_equal(result["events"]["lost"], 0, "lost events")
        check_equal(result["events"]["incomplete"], 0, "incomplete events")
        check_equal(result["fragments"]["lost"], 0, "lost fragments")
        found = verify(result)
        check_equal(found["events"], result["events"]["built"], "events in the files")
        check(found["events"] > 2000, "nothing was built after the loss")


if __name__ == "__main__":
    main()
