"""Where pods' connections to the outside world are led: one rule in the cluster's own network namespace.

Needs the machine's `iptables`. Must not know who takes the connections up; that is `node.network.outbound`.
"""

from __future__ import annotations

import os
from typing import Any

_PLACES = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin")


def program() -> str:
    """The path of iptables, which often is not on an ordinary user's PATH; empty if there is none."""
    found = (f"{place}/iptables" for place in _PLACES)
    return next((path for path in found if os.access(path, os.X_OK)), "")


def lead_out(network: dict[str, Any], *, lock: str) -> str:
    """Lead TCP connections that leave the cluster to `relay` on the gateway. Answers why not, or nothing."""
    path = program()
    if not path:
        return "iptables is not installed"
    inside = [network["pods"], f"{network['services']}/{network['services_prefix']}"]
    chain = ["-t", "nat", "-A", "PREROUTING", "-i", network["bridge"], "-p", "tcp"]
    rules = [[*chain, "-d", one, "-j", "RETURN"] for one in inside]
    rules.append([*chain, "-j", "REDIRECT", "--to-ports", str(network["relay"])])
    for rule in rules:
        # the machine's own lock file is root's, and its tables are not ours
        pid = os.posix_spawn(path, [path, *rule], {"XTABLES_LOCKFILE": lock, "PATH": ":".join(_PLACES)})
        if os.waitpid(pid, 0)[1]:
            return "the kernel does not let us redirect connections"
    return ""
