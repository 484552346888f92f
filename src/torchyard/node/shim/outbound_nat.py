"""The NAT rule for pods' connections to the outside: it redirects them, in the cluster's own network namespace.

Needs the machine's `iptables`. The relay that accepts the connections is `node.network.outbound`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ClusterNetworkConfig

_DIRECTORIES = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin")


def find_iptables() -> str:
    """The path of iptables, which often is not on an ordinary user's PATH; empty if there is none."""
    paths = (f"{directory}/iptables" for directory in _DIRECTORIES)
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def redirect_outbound(network: ClusterNetworkConfig, *, lock: str) -> str:
    """Redirect TCP connections that leave the cluster to the `relay` port of the gateway. Returns why not, or ""."""
    if not find_iptables():
        return "iptables is not installed"
    cluster = [network["pods"], f"{network['services']}/{network['services_prefix']}"]
    chain = ["-t", "nat", "-A", "PREROUTING", "-i", network["bridge"], "-p", "tcp"]
    rules = [[*chain, "-d", cidr, "-j", "RETURN"] for cidr in cluster]
    rules.append([*chain, "-j", "REDIRECT", "--to-ports", str(network["relay"])])
    if all(_iptables(rule, lock) for rule in rules):
        return ""
    return "the kernel does not allow connections to be redirected"


def except_port(network: ClusterNetworkConfig, address: str, port: int, *, lock: str, remove: bool = False) -> None:
    """Redirect no connections to a port that is served in the cluster's network, or redirect them again."""
    if network.get("relay") and find_iptables():
        change = ["-D", "PREROUTING"] if remove else ["-I", "PREROUTING", "1"]
        match = ["-i", network["bridge"], "-p", "tcp", "-d", address, "--dport", str(port)]
        _iptables(["-t", "nat", *change, *match, "-j", "RETURN"], lock)


def _iptables(rule: list[str], lock: str) -> bool:
    iptables = find_iptables()
    # The machine's own lock file belongs to root; these tables are not the machine's.
    pid = os.posix_spawn(iptables, [iptables, *rule], {"XTABLES_LOCKFILE": lock, "PATH": ":".join(_DIRECTORIES)})
    return os.waitpid(pid, 0)[1] == 0
