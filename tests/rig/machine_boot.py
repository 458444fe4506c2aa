"""The first process of a machine of `tests.rig.machine`, inside its namespaces: HOSTNAME HOSTS BOOT_ID.

Names the machine, gives it a loopback, an /etc/hosts and a boot id of its own, says `up`, and stays until its standard
input ends. All processes of the machine end with it.
"""

from __future__ import annotations

import fcntl
import signal
import socket
import struct
import subprocess
import sys

SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def main() -> None:
    """See above."""
    name, hosts, boot_id = sys.argv[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans are nobody's business
    socket.sethostname(name)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    subprocess.run(["mount", "--bind", boot_id, "/proc/sys/kernel/random/boot_id"], check=True)
    print("up", flush=True)
    sys.stdin.read()


main()
