"""`python -m bench.fairness`: how long one client waits while another floods the server.

A user floods the server over many connections, with gets, with gets on a new connection each, and with lists of 2,000
pods, while another user runs `kubectl get` again and again. Prints the latencies of `kubectl get` with and without the
flood, for our server and, if its binaries are there (KUBEBUILDER_ASSETS), for kube-apiserver with API priority and
fairness. `--same-user` lets the flood use the same token as kubectl.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.kubernetes import Kubernetes, Server, assets, write_kubeconfig
from tests.support.yard import Yard

from bench.quantiles import quantile

USERS = 'flood-token,flood,1,"system:masters"\nvictim-token,victim,2,"viewers"\n'
POLICY = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "fairness-bench"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [
        {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"} for name in ("victim", "plain")
    ],
}
PODS = "/api/v1/namespaces/default/pods"


@contextlib.contextmanager
def _flood(server: Server, path: str, connections: int, token: str, *flags: str) -> Iterator[None]:
    """Another process that sends this request over and over again on so many connections."""
    command = [sys.executable, "-m", "bench.fairness", "--flood", path, "--connections", str(connections)]
    command += ["--url", server.url, "--ca", str(server.ca), "--token", token, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # all connections have had a response
        yield
    finally:
        process.terminate()
        process.wait()


async def _send_flood(url: str, ca: str, token: str, path: str, connections: int, *, reconnect: bool) -> None:
    parts, context = urlsplit(url), ssl.create_default_context(cafile=ca)
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    started = 0

    async def repeat() -> None:
        nonlocal started
        is_first = True
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
                with contextlib.closing(writer):
                    while True:
                        writer.write(request)
                        await _skip_response(reader)
                        started += is_first
                        is_first = False
                        if reconnect:
                            break
                if reconnect:
                    continue
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(repeat()) for _ in range(connections)]
    deadline = time.monotonic() + 30
    while started < connections * 0.9 and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    print("started", flush=True)
    await asyncio.gather(*tasks)


async def _skip_response(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if "transfer-encoding: chunked" in head:
        while size := int((await reader.readline()).split(b";")[0], 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    elif "content-length: " in head:
        await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0]))


def _get_seconds(server: Server, token: str, runs: int) -> list[float]:
    """A handshake and one get each, as the first request of a kubectl does."""
    taken = []
    for _ in range(runs):
        start = time.monotonic()
        with contextlib.closing(server.admin.connect()) as connection:
            path = "/api/v1/namespaces/default/configmaps"
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            connection.getresponse().read()
        taken.append(time.monotonic() - start)
    return sorted(taken)


def _kubectl_seconds(kubectl: str, kubeconfig: Path, runs: int) -> list[float]:
    taken = []
    for _ in range(runs):
        start = time.monotonic()
        command = [kubectl, "--kubeconfig", kubeconfig, "get", "configmaps"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"kubectl failed: {done.stderr.strip()[:200]}")
        taken.append(time.monotonic() - start)
    return sorted(taken)


def _prepare(server: Server, pods: int) -> None:
    server.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", POLICY)
    server.admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    container = {"name": "c", "image": "i", "env": [{"name": "PAD", "value": "x" * 500}]}
    for number in range(pods):
        pod = {"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}}
        answer = server.admin.post(PODS, pod)
        if answer.status != 201:
            raise SystemExit(f"cannot create a pod: {answer}")


def _measure(name: str, server: Server, directory: Path, arguments: argparse.Namespace) -> None:
    kubectl = str((assets() or Path("/usr/bin")) / "kubectl")
    token = server.token if arguments.same_user else "victim-token"
    kubeconfig = directory / "victim.kubeconfig"
    write_kubeconfig(kubeconfig, url=server.url, ca=server.ca, token=token)
    _prepare(server, arguments.pods)
    _kubectl_seconds(kubectl, kubeconfig, 2)  # discovery is cached
    flood_token = server.token if arguments.same_user else "flood-token" if arguments.masters else "plain-token"
    floods: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("none", ()),
        ("gets", (f"{PODS}/p0",)),
        ("connections", (f"{PODS}/p0", "--reconnect")),
        (f"lists of {arguments.pods} pods", (PODS,)),
    )
    for label, flood in floods:
        with contextlib.ExitStack() as stack:
            if flood:
                path, *flags = flood
                stack.enter_context(_flood(server, path, arguments.connections, flood_token, *flags))
            gets = _get_seconds(server, token, 4 * arguments.runs)
            kubectls = _kubectl_seconds(kubectl, kubeconfig, arguments.runs)
        print(
            f"{name}: flood {label}: {_line('kubectl get', kubectls)}; {_line('handshake and GET', gets)}", flush=True
        )


def _line(subject: str, taken: list[float]) -> str:
    return f"{subject} p50 {quantile(taken, 0.5):.2f} s, p90 {quantile(taken, 0.9):.2f} s, max {taken[-1]:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--same-user", action="store_true", help="the flood uses the token of kubectl")
    parser.add_argument("--masters", action="store_true", help="the flood is of a user in system:masters")
    parser.add_argument("--ours", action="store_true", help="only our server")
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    parser.add_argument("--reconnect", action="store_true", help=argparse.SUPPRESS)
    for hidden in ("--url", "--ca", "--token"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(
                _send_flood(
                    *(arguments.url, arguments.ca, arguments.token, arguments.flood, arguments.connections),
                    reconnect=arguments.reconnect,
                )
            )
        return
    users = USERS + "plain-token,plain,3\n"
    with tempfile.TemporaryDirectory(prefix="bench-fairness-") as temporary:
        directory = Path(temporary) / "yard"
        with Yard(directory, controllers="-*", users=users) as server:
            _measure("torchyard", server, directory, arguments)
        if assets() is None or arguments.ours:
            return
        directory = Path(temporary) / "kube"
        flags = ("--enable-priority-and-fairness=true",)
        with Kubernetes(directory, users=users, flags=flags) as server:
            _measure("kube-apiserver", server, directory, arguments)


if __name__ == "__main__":
    main()
