"""`python -m bench.api`: one line of figures per server, then the ratios.

Both servers do the same work one after the other on the same machine, both without controllers: kube-apiserver with
etcd (writes synced to disk, as in production) and `yard up`. With `--with-controllers` both are whole: the plane with
all its controllers and its node, kube-apiserver with kube-controller-manager and kube-scheduler. The pods wait then:
the peer has no node, and ours are for another one. With `--run-pods` our node runs those that fit, one after the other,
and the peer's still wait. Needs wrk and curl, and for the peer the binaries of a real Kubernetes (KUBEBUILDER_ASSETS).
`--seconds` is the length of each load.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil
from tests.support.kubernetes import Kubernetes, Server, assets
from tests.support.yard import Yard

from bench.api import load

PODS = 5000
WATCHERS = 20


@dataclass(frozen=True)
class Figures:
    startup_s: float
    creates_per_s: float
    gets_per_s: float
    list_5000_ms: float
    watched_creates_per_s: float
    events_per_s: float
    rss_mb: float


# Whether more is better.
MORE = {"creates_per_s", "gets_per_s", "watched_creates_per_s", "events_per_s"}


@contextlib.contextmanager
def _kube(directory: Path, *, with_controllers: bool) -> Iterator[tuple[Server, float]]:
    start = time.monotonic()
    # The admission plugins that a production server has, service accounts among them.
    flags = () if with_controllers else ("--disable-admission-plugins", "")
    controllers = "*" if with_controllers else ""
    with Kubernetes(directory, fsync=True, flags=flags, controllers=controllers, scheduler=with_controllers) as server:
        _first_answer(server.kubeconfig)
        yield server, time.monotonic() - start


@contextlib.contextmanager
def _yard(directory: Path, *flags: str, with_controllers: bool) -> Iterator[tuple[Server, float]]:
    yard = Yard(directory, controllers="" if with_controllers else "-*", node=with_controllers, flags=flags)
    start = time.monotonic()
    try:
        yard.launch().wait_until(yard.kubeconfig.exists, "its kubeconfig", pause=0.005)
        _first_answer(yard.kubeconfig)
        taken = time.monotonic() - start
        yield yard.server(), taken
    finally:
        yard.stop()


def _first_answer(kubeconfig: Path) -> None:
    kubectl = str((assets() or Path("/usr/bin")) / "kubectl")
    subprocess.run([kubectl, "--kubeconfig", kubeconfig, "get", "namespaces"], capture_output=True, check=True)


def _prepare(server: Server) -> None:
    """What pods need and a bare kube-apiserver does not make: the default service account."""
    server.admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})


def _rss(directory: Path) -> float:
    """Memory of every process whose command names the server's directory, in MB."""
    total = 0
    for process in psutil.process_iter(["cmdline", "memory_info"]):
        if any(str(directory) in word for word in process.info["cmdline"] or ()):
            total += process.info["memory_info"].rss
    return total / 1e6


def _measure(server: Server, startup: float, directory: Path, seconds: float, *, waiting: bool) -> Figures:
    _prepare(server)
    created, batch = 0, 0
    while created < PODS:  # also warms the server up
        batch += 1
        created += int(load.creates(server, f"fill-{batch}", 1, waiting=waiting))
    name = _trim(server)
    rss = _rss(directory)
    listed = load.list_seconds(server, "/api/v1/namespaces/default/pods")
    ended, begun = _ended(server), time.monotonic()
    creates = load.creates(server, "create", seconds, waiting=waiting)
    if not waiting and (ended := _ended(server) - ended):
        print(f"beside the creates: {ended / (time.monotonic() - begun):.0f} pods/s ended", flush=True)
    gets = load.gets(server, f"/api/v1/namespaces/default/pods/{name}", seconds)
    revision = server.admin.get("/api/v1/namespaces?limit=1").json["metadata"]["resourceVersion"]
    watchers = load.Watchers(server, f"/api/v1/pods?watch=true&resourceVersion={revision}", WATCHERS)
    watched = load.creates(server, "watched", seconds, waiting=waiting)
    events = watchers.stop() / seconds
    return Figures(startup, creates, gets, listed * 1000, watched, events, rss)


def _ended(server: Server) -> int:
    """How many pods have ended."""
    pods = server.admin.get("/api/v1/namespaces/default/pods").json["items"]
    return sum(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods)


def _trim(server: Server) -> str:
    """Leave exactly as many pods as the list and the memory are measured with; answers the name of one."""
    at = "/api/v1/namespaces/default/pods"
    names = [pod["metadata"]["name"] for pod in server.admin.get(at).json["items"]]
    for name in names[PODS:]:
        server.admin.delete(f"{at}/{name}", {"gracePeriodSeconds": 0})
    return str(names[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.api", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--fsync", choices=("normal", "full"), default="full", help="how our store writes")
    parser.add_argument("--with-controllers", action="store_true", help="the whole planes, not only their API servers")
    parser.add_argument(
        "--run-pods", action="store_true", help="with controllers: pods that fit our node, which runs them"
    )
    parser.add_argument("--ours", action="store_true", help="only our server")
    arguments = parser.parse_args()
    whole = arguments.with_controllers
    waiting = whole and not arguments.run_pods
    if lacking := load.missing():
        raise SystemExit(f"needs {lacking}: install it from the system's packages")
    with tempfile.TemporaryDirectory(prefix="bench-api-") as temporary:
        ours = _run(
            "torchyard",
            _yard(Path(temporary) / "yard", "--fsync", arguments.fsync, with_controllers=whole),
            Path(temporary) / "yard",
            arguments.seconds,
            waiting=waiting,
        )
        if arguments.ours:
            return
        if assets() is None:
            print("kube-apiserver: no binaries here (set KUBEBUILDER_ASSETS), so no ratio")
            return
        peer = _run(
            "kube-apiserver + etcd" + (" + kube-controller-manager + kube-scheduler" if whole else ""),
            _kube(Path(temporary) / "kube", with_controllers=whole),
            Path(temporary) / "kube",
            arguments.seconds,
            waiting=waiting,
        )
    ratios = []
    for field, mine, theirs in zip(fields(Figures), astuple(ours), astuple(peer), strict=True):
        ratio = mine / theirs if field.name in MORE else theirs / mine
        ratios.append(f"{field.name} {ratio:.1f}×")
    print("better by: " + ", ".join(ratios))


def _run(
    name: str,
    running: contextlib.AbstractContextManager[tuple[Server, float]],
    directory: Path,
    seconds: float,
    *,
    waiting: bool,
) -> Figures:
    with running as (server, startup):
        figures = _measure(server, startup, directory, seconds, waiting=waiting)
    print(
        f"{name}: " + ", ".join(f"{f.name} {v:,.1f}" for f, v in zip(fields(Figures), astuple(figures), strict=True)),
        flush=True,
    )
    return figures


if __name__ == "__main__":
    main()
