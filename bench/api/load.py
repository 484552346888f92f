"""Load from programs in C, so that the client is not what is measured: wrk for requests, curl for watches and lists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

from tests.support.kubernetes import Server

HERE = Path(__file__).parent
CONNECTIONS = 32
SPEC = {
    "restartPolicy": "Never",
    "containers": [
        {
            "name": "pytorch",
            "image": "pytorch/pytorch:2.0",
            "command": ["python", "train.py"],
            "args": ["--backend", "gloo"],
            "env": [
                {"name": "MASTER_ADDR", "value": "job-master-0"},
                {"name": "MASTER_PORT", "value": "23456"},
                {"name": "WORLD_SIZE", "value": "4"},
                {"name": "RANK", "value": "@RANK@"},  # a number of its own for each pod
            ],
            "ports": [{"name": "pytorchjob-port", "containerPort": 23456, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    "volumes": [{"name": "data", "emptyDir": {}}],
}

NO_NODE = {"kubernetes.io/hostname": "none"}


def missing() -> str:
    """Which program is missing, or nothing."""
    return ", ".join(name for name in ("wrk", "curl") if shutil.which(name) is None)


def _wrk(server: Server, script: str, seconds: float, *arguments: str) -> float:
    """Requests per second that were answered as expected."""
    command = ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-s", str(HERE / script), server.url, "--"]
    done = subprocess.run([*command, server.token, *arguments], capture_output=True, text=True, check=True)
    if "unexpected answer" in done.stderr or "Non-2xx" in done.stdout:
        raise SystemExit(f"{server.name} did not answer as expected: {done.stderr.strip() or done.stdout}")
    match = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if match is None:
        raise SystemExit(f"wrk said nothing about its rate: {done.stdout}")
    return float(match.group(1))


def creates(server: Server, prefix: str, seconds: float, *, waiting: bool = False) -> float:
    """Create pods. `waiting`: for no node that exists."""
    spec = {**SPEC, "nodeSelector": NO_NODE} if waiting else SPEC
    return _wrk(server, "pod.lua", seconds, prefix, json.dumps(spec))


def gets(server: Server, path: str, seconds: float) -> float:
    return _wrk(server, "get.lua", seconds, path)


def _curl(server: Server, path: str, *options: str) -> list[str]:
    authority = ["--cacert", str(server.ca), "-H", f"Authorization: Bearer {server.token}"]
    # Both servers indent JSON for curl's own user agent, which no client asks for that is a program.
    return ["curl", "-sS", "--fail", "--user-agent", "bench", *authority, *options, server.url + path]


def list_seconds(server: Server, path: str, times: int = 10) -> float:
    """The median time of a whole list."""
    command = _curl(server, path, "-o", "/dev/null", "-w", "%{time_total}")
    taken = [float(subprocess.check_output(command, text=True)) for _ in range(times)]
    return sorted(taken)[times // 2]


class Watchers:
    """Watches in curl, their lines counted by wc."""

    def __init__(self, server: Server, path: str, count: int) -> None:
        watch = _curl(server, path, "-N")
        self._watches = [
            subprocess.Popen(watch, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(count)
        ]
        self._counters = [
            subprocess.Popen(["wc", "-l"], stdin=watch.stdout, stdout=subprocess.PIPE, text=True)
            for watch in self._watches
        ]
        for watch in self._watches:
            assert watch.stdout is not None
            watch.stdout.close()
        time.sleep(1)

    def stop(self) -> int:
        """End the watches once they are idle; answers how many lines they were sent."""
        time.sleep(2)
        for watch in self._watches:
            watch.terminate()
            watch.wait()
        return sum(int(counter.communicate()[0]) for counter in self._counters)
