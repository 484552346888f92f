"""A real Kubernetes to compare with: etcd and kube-apiserver on loopback, with or without its controllers.

It is found through KUBEBUILDER_ASSETS (a directory with etcd, kube-apiserver and kubectl, as envtest names it) or
through a `shared/k8s/cluster` script beside the checkout, whose `unpack` prints such a directory.
"""

from __future__ import annotations

import base64
import fcntl
import functools
import json
import os
import platform
import secrets
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.support.http import Client
from tests.support.process import Process, free_port

from torchyard.apiserver.access.certificates import ensure

ROOT = Path(__file__).resolve().parents[2]
SERVICE_RANGE = "10.96.0.0/16"
MISSING = (
    "no real Kubernetes that runs here: set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver and kubectl"
    f" for {platform.machine()}"
)


@functools.cache
def assets() -> Path | None:
    """The directory with the binaries of a real Kubernetes, if this machine has one."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    script = ROOT.parent / "shared" / "k8s" / "cluster"
    if named:
        directory = Path(named)
    elif script.exists():
        # Test workers start together, and the script must not run twice at the same time.
        with (Path(tempfile.gettempdir()) / f"unpack-kubernetes.{os.getuid()}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            directory = Path(subprocess.check_output([script, "unpack"], text=True).strip())
    else:
        return None
    return directory if (directory / "kube-apiserver").exists() and _runs(directory / "etcd") else None


def _runs(program: Path) -> bool:
    """Whether the program exists and runs on this machine."""
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def has(program: str) -> bool:
    """Whether the real Kubernetes also has this program (kube-controller-manager, kube-scheduler, ...)."""
    directory = assets()
    return directory is not None and (directory / program).exists()


@dataclass(frozen=True)
class Server:
    """A running API server, ours or the real one, as a client with full rights sees it."""

    name: str
    url: str
    token: str
    ca: Path
    kubeconfig: Path
    certificate: tuple[str, str] | None = None  # paths of the client certificate and its key, where there is no token

    @functools.cached_property
    def admin(self) -> Client:
        return Client(self.url, self.token, str(self.ca), self.certificate)

    @property
    def real(self) -> bool:
        return self.name == "kube"


def write_kubeconfig(path: Path, *, url: str, ca: Path, token: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
    }
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)


def from_kubeconfig(name: str, path: Path, directory: Path) -> Server:
    """Return the server of a kubeconfig; write its inline certificates into `directory`."""
    config = yaml.safe_load(path.read_text())
    cluster: dict[str, Any] = config["clusters"][0]["cluster"]
    user: dict[str, Any] = config["users"][0]["user"]
    ca = directory / "ca.crt"
    ca.write_bytes(_inline_or_file(cluster, "certificate-authority"))
    if "token" in user:
        return Server(name, cluster["server"], user["token"], ca, path)
    certificate, key = directory / "client.crt", directory / "client.key"
    certificate.write_bytes(_inline_or_file(user, "client-certificate"))
    key.write_bytes(_inline_or_file(user, "client-key"))
    return Server(name, cluster["server"], "", ca, path, (str(certificate), str(key)))


def _inline_or_file(holder: dict[str, Any], name: str) -> bytes:
    """A kubeconfig gives certificates and keys inline in base64, or as a path."""
    if f"{name}-data" in holder:
        return base64.b64decode(holder[f"{name}-data"])
    return Path(holder[name]).read_bytes()


class Kubernetes:
    """etcd + kube-apiserver in `directory`; `controllers` is kube-controller-manager's own list, empty for none."""

    def __init__(
        self,
        directory: Path,
        *,
        controllers: str = "",
        scheduler: bool = False,
        users: str = "",
        flags: tuple[str, ...] = (),
        manager_flags: tuple[str, ...] = (),
        fsync: bool = False,
    ) -> None:
        programs = assets()
        if programs is None:
            raise RuntimeError(MISSING)
        self.bin = programs
        self.directory = directory
        self.controllers = controllers
        self.scheduler = scheduler
        self.users = users
        self.flags = flags
        self.manager_flags = manager_flags
        self.fsync = fsync
        self.processes: list[Process] = []
        self.etcd_url = ""

    def __enter__(self) -> Server:
        try:
            return self._start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        # Last started, first stopped; kube-apiserver would wait for its open watches, and nothing here is kept.
        for process in reversed(self.processes):
            process.kill()
        self.processes.clear()

    def _run(self, program: str, *arguments: str) -> Process:
        process = Process([self.bin / program, *arguments], self.directory / f"{program}.log")
        self.processes.append(process)
        return process

    def _start(self) -> Server:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.etcd_url = self._start_etcd()
        _write_key(self.directory / "service-accounts.key")
        token = secrets.token_hex(16)
        (self.directory / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n{self.users}')
        server = self._start_api(token, free_port())
        if self.controllers:
            self._start_controllers(server)
        if self.scheduler:
            kubeconfig = str(server.kubeconfig)
            self._run("kube-scheduler", "--kubeconfig", kubeconfig, "--leader-elect=false", "--secure-port", "0")
        return server

    def forget_history(self, server: Server) -> None:
        """Compact etcd and restart kube-apiserver, so that its caches hold nothing older."""
        revision = server.admin.get("/api/v1/namespaces").json["metadata"]["resourceVersion"]
        etcd = Client(self.etcd_url)
        compacted = etcd.post("/v3/kv/compaction", {"revision": revision, "physical": True})
        if compacted.status != 200:
            raise RuntimeError(f"etcd cannot compact: {compacted}")
        next(process for process in self.processes if process.name == "kube-apiserver").kill()
        self._start_api(server.token, int(server.url.rsplit(":", 1)[1]))

    def _start_api(self, token: str, port: int) -> Server:
        key, tokens = self.directory / "service-accounts.key", self.directory / "tokens.csv"
        api = self._run(
            "kube-apiserver",
            *("--bind-address", "127.0.0.1", "--secure-port", str(port), "--etcd-servers", self.etcd_url),
            *("--cert-dir", str(self.directory), "--token-auth-file", str(tokens), "--authorization-mode", "RBAC"),
            *("--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", str(key)),
            *("--service-account-signing-key-file", str(key), "--service-cluster-ip-range", SERVICE_RANGE),
            *("--client-ca-file", str(ensure(self.directory / "clients").authority)),
            *("--endpoint-reconciler-type", "none", "--allow-privileged=true", "--enable-priority-and-fairness=false"),
            *([] if self.controllers else ["--disable-admission-plugins", "ServiceAccount"]),
            *self.flags,
        )
        ca = self.directory / "apiserver.crt"
        url = f"https://127.0.0.1:{port}"
        kubeconfig = self.directory / "kubeconfig"
        write_kubeconfig(kubeconfig, url=url, ca=ca, token=token)
        server = Server("kube", url, token, ca, kubeconfig)
        api.wait_until(lambda: ca.exists() and server.admin.get("/readyz").status == 200, "readiness")
        return server

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        etcd = self._run(
            "etcd",
            *("--data-dir", str(self.directory / "etcd"), "--log-level", "error"),
            *([] if self.fsync else ["--unsafe-no-fsync"]),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *(
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"default={peer}",
            ),
        )
        etcd.wait_until(lambda: b"true" in Client(client).get("/health").body, "health")
        return client

    def _start_controllers(self, server: Server) -> None:
        key = self.directory / "service-accounts.key"
        manager = self._run(
            "kube-controller-manager",
            *("--kubeconfig", str(server.kubeconfig), "--leader-elect=false", "--secure-port", "0"),
            *("--use-service-account-credentials", "--service-account-private-key-file", str(key)),
            *("--root-ca-file", str(server.ca), "--kube-api-qps", "300", "--kube-api-burst", "600"),
            *("--controllers", self.controllers),
            *self.manager_flags,
        )
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        manager.wait_until(lambda: server.admin.get(account).status == 200, "the default service account")


def _write_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
