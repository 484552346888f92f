"""Routes from the machine to pods, in network namespaces of the test's own: a machine, a pod, and another machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.node.network.pod_routes import overlapping

TOPOLOGY = Path(__file__).with_name("pod_route_topology.py")


def test_the_machine_reaches_pods_and_services_and_others_do_not(tmp_path: Path) -> None:
    unshared = ["unshare", "--user", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*unshared, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no network namespaces (unshare --user --net)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*unshared, sys.executable, str(TOPOLOGY), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    unreachable = {"TimeoutError", "OSError", "ConnectionRefusedError"}
    assert result["before"] in unreachable
    assert result["refused"][:2] == ["", ""]
    assert "another plane of this machine has the routes" in result["refused"][2]
    # pods and Services see the machine's end of the link
    assert result["machine"] == ["169.254.244.0"] * 4
    # a pod does not get beyond the machine, which can reach the other one
    assert result["machine to other"] == "192.0.2.1"
    assert set(result["pod to other"]) <= unreachable
    # another machine reaches neither, whatever address it claims to have
    assert set(result["other"]) <= unreachable
    assert result["received"] == [["machine", "last"], ["machine", "last"]]
    assert result["second disconnected"] == "169.254.244.0"
    assert result["disconnected"] in unreachable
    assert "the machine uses the addresses already, by the route 10.0.0.0/8 of lan" in result["route taken"]
    assert result["links"] == ["lan", "lo"]


def test_only_other_routes_than_the_default_one_take_addresses() -> None:
    table = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        "cni0\t0000F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    assert overlapping(table, ["10.96.0.0/16"]) == ""
    assert overlapping(table, ["10.96.0.0/16", "10.244.0.0/24"]) == "10.244.0.0/24 of cni0"
    assert overlapping(table, ["192.0.2.128/25"]) == "192.0.2.0/24 of eth0"
