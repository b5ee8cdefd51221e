"""A host that knows its own name only as 127.0.1.1 (Debian) can be reached by others."""

import re
import socket
import subprocess

import pytest
from fanin_run import Folder, Run


def knows_only_as(address, name, folder):
    """Words before a command: its host knows that name as this address and no other."""
    hosts = folder.write("hosts", f"127.0.0.1 localhost\n{address} {name}\n")
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'mount --bind "{hosts}" /etc/hosts && exec "$@"', "sh"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"this process may not mount a file: {tried.stderr.strip()}")
    return words


def test_an_event_manager_with_a_name_that_is_a_loopback_address_listens_at_all_addresses():
    with Folder() as folder:
        prefix = knows_only_as("127.0.1.1", "daq-of-this-test", folder)
        with Run(folder.small(), "--node", "evm", "--set", "network.control=tcp://daq-of-this-test:0", prefix=prefix) as run:
            url = run.url()
            assert url.startswith("tcp://daq-of-this-test:"), url
            for address in ("127.0.0.1", "127.0.1.1"):
                socket.create_connection((address, int(re.search(r":(\d+)$", url)[1]))).close()
            run.signal()
            run.finish(status=1)  # it never began
