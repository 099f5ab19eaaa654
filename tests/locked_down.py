"""Runs the program under the restrictions that the systemd unit sets, as far as they can be set without systemd.

RestrictAddressFamilies, SystemCallFilter with SystemCallErrorNumber, NoNewPrivileges, RestrictNamespaces, RestrictRealtime,
UMask, LimitCORE. Not set: LockPersonality, RestrictSUIDSGID, SystemCallArchitectures (the program uses none of what they forbid).
"""

import ctypes
import errno
import os
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pyseccomp

UNIT = Path(__file__).parents[1] / "systemd/xdna-dictate.service"
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NAMESPACES = 0x7E020000


def settings() -> dict[str, str]:
    """Keys of the unit's [Service] section."""
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE))


def group(name: str) -> set[str]:
    """System calls of one of systemd's groups, the groups in it included."""
    out = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True).stdout
    names = [line.strip() for line in out.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return {call for entry in names for call in (group(entry) if entry.startswith("@") else {entry})}


def lock_down() -> None:
    """Apply the restrictions to this process and its children."""
    unit = settings()
    assert unit["RestrictAddressFamilies"] == "AF_UNIX"
    assert unit["SystemCallErrorNumber"] == "EPERM"
    allowed = group(unit["SystemCallFilter"])
    os.umask(int(unit["UMask"], 8))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    assert unit["NoNewPrivileges"] == "yes"
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    refused = pyseccomp.ERRNO(errno.EPERM)
    filters = pyseccomp.SyscallFilter(defaction=refused)
    for call in sorted(allowed - {"socket", "clone", "unshare", "setns", "sched_setscheduler"}):
        try:
            filters.add_rule(pyseccomp.ALLOW, call)
        except (OSError, ValueError, RuntimeError):
            continue  # a call of another architecture
    filters.add_rule(pyseccomp.ALLOW, "socket", pyseccomp.Arg(0, pyseccomp.EQ, socket.AF_UNIX))
    filters.add_rule(pyseccomp.ALLOW, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_NAMESPACES, 0))
    filters.load()


if __name__ == "__main__":
    lock_down()
    try:
        socket.socket(socket.AF_INET)
    except PermissionError:
        print("locked down", file=sys.stderr, flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "xdna_dictate.cli", *sys.argv[1:]])
