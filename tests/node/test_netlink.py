"""The wires of pods, in a network namespace of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

# SIOCGIFHWADDR: the interface's name in, its address from the eighteenth byte on.
ADDRESSES = """
import fcntl, os, socket
from torchyard.node.shim import netlink
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here = os.open("/proc/self/ns/net", os.O_RDONLY)
netlink.add_bridge("b0")
for number in range(16):
    netlink.add_veth(f"v{number}", f"w{number}", peer_namespace=here, bridge="b0")
    print(fcntl.ioctl(link, 0x8927, b"b0".ljust(40, bytes(1)))[18:24].hex())
"""


def test_a_bridge_keeps_its_mac_address_when_ports_change() -> None:
    unshared = ["unshare", "--user", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*unshared, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no network namespaces (unshare --user --net)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*unshared, sys.executable, "-c", ADDRESSES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    addresses = done.stdout.split()
    assert (len(addresses), len(set(addresses))) == (16, 1)
