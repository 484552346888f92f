"""Network: the pod's own, the machine's loopback, the API server."""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import urllib.error
import urllib.request

from tests.security.hostile import targets
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case, denied

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE = 16, 20, 24


@case
def interfaces() -> Verdict:
    """The pod has its own interface and lo; the modules of tunnels add their own to every namespace."""
    if os.readlink("/proc/self/ns/net") == targets.text("HOST_NS_NET"):
        return "the machine's"
    names = {name for _, name in socket.if_nameindex()}
    return sorted(names - {"sit0", "tunl0", "gre0", "gretap0", "erspan0", "ip6tnl0", "ip6gre0", "ip_vti0", "ip6_vti0"})


def _netlink(kind: int, body: bytes) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as channel:
        channel.settimeout(3)
        channel.send(struct.pack("=IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        code = -struct.unpack_from("=i", channel.recv(4096), 16)[0]
    if code:
        raise OSError(code, os.strerror(code))


def set_link_down(name: str) -> None:
    """Take the interface `lo` down: with its flags unchanged, so that nothing happens if it is allowed."""
    index = socket.if_nametoindex(name)
    _netlink(RTM_NEWLINK, struct.pack("=BxHiII", 0, 0, index, 1, 1))


@case
def interface_configured() -> Verdict:
    return attempt(set_link_down, "lo")


@case
def address_added() -> Verdict:
    address = socket.inet_aton("127.7.7.7")
    attributes = struct.pack("=HH4s", 8, 2, address) + struct.pack("=HH4s", 8, 1, address)
    body = struct.pack("=BBBBi", socket.AF_INET, 32, 0, 254, socket.if_nametoindex("lo")) + attributes
    return attempt(_netlink, RTM_NEWADDR, body)


@case
def route_added() -> Verdict:
    destination = struct.pack("=HH4s", 8, 1, socket.inet_aton("192.0.2.0"))
    interface = struct.pack("=HHi", 8, 4, socket.if_nametoindex("lo"))
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 24, 0, 0, 254, 4, 253, 1, 0) + destination + interface
    return attempt(_netlink, RTM_NEWROUTE, body)


@case
def low_port() -> Verdict:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return attempt(server.bind, ("127.0.0.1", 81))


@case
def promiscuous_mode() -> Verdict:
    """PACKET_MR_PROMISC on the pod's own interface."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sniffer:
        index = socket.if_nametoindex("lo")
        return attempt(lambda: sniffer.setsockopt(263, 1, struct.pack("=iHH8s", index, 1, 0, b"")))


@case
def socket_mark() -> Verdict:
    with socket.socket() as client:
        return attempt(lambda: client.setsockopt(socket.SOL_SOCKET, 36, 7))


@case
def forced_buffer() -> Verdict:
    with socket.socket() as client:
        return attempt(lambda: client.setsockopt(socket.SOL_SOCKET, 33, 1 << 24))


@case
def filter_rules_listed() -> Verdict:
    """IPT_SO_GET_INFO of the table `filter`: root of the network namespace only."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 255) as raw:
        return attempt(lambda: raw.getsockopt(0, 64, 84))


def _connect(host: str) -> Verdict:
    """A server of the tests that listens on the loopback of the machine."""
    with socket.socket() as client:
        client.settimeout(3)
        try:
            client.connect((host, targets.number("LOOPBACK_PORT")))
            text = client.recv(64)
        except TimeoutError:
            return ABSENT
        except ConnectionError:
            return ABSENT
        except OSError as error:
            return denied(error)
    return ALLOWED if targets.text("HOST_MARK").encode() in text else f"another server: {text!r}"


for _host in ("127.0.0.1", "127.0.0.2", "0.0.0.0"):
    add(f"network.loopback_of_the_machine:{_host}", _connect, _host)


@case
def loopback_of_the_machine_through_the_gateway() -> Verdict:
    gateway = _gateway()
    return _connect(gateway) if gateway else ABSENT


def _gateway() -> str:
    with open("/proc/net/route") as lines:
        for line in lines:
            fields = line.split()
            if fields[1] == "00000000":
                return socket.inet_ntoa(struct.pack("<I", int(fields[2], 16)))
    return ""


def _api(path: str, *, token: str = "", user: str = "", method: str = "GET") -> Verdict:
    """The status of a request to the API server."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ABSENT
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if user:
        headers["Impersonate-User"] = user
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    body = json.dumps(obj).encode() if method == "POST" else None
    request = urllib.request.Request(f"https://{host}:{port}{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return "denied" if error.code in (401, 403) else error.code
    except OSError as error:
        cause = getattr(error, "reason", error)
        return denied(cause if isinstance(cause, OSError) else error)


def _token() -> str:
    try:
        with open(TOKEN) as file:
            return file.read()
    except OSError:
        return ""


def _api_own_account(path: str) -> Verdict:
    return _api(path, token=_token())


PATHS = {
    "secrets": "/api/v1/namespaces/default/secrets", "all secrets": "/api/v1/secrets", "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes", "roles": "/apis/rbac.authorization.k8s.io/v1/clusterroles", "metrics": "/metrics",
    "logs": "/logs/", "proxy": "/api/v1/nodes/here/proxy/",
    "exec": "/api/v1/namespaces/default/pods/victim/exec?command=id",
}  # fmt: skip
for _name, _path in PATHS.items():
    add(f"network.api_anonymous:{_name}", _api, _path)
    add(f"network.api_own_account:{_name}", _api_own_account, _path)


@case
def api_impersonation() -> Verdict:
    return _api("/api/v1/secrets", token=_token(), user="system:admin")


@case
def api_pod_created() -> Verdict:
    return _api("/api/v1/namespaces/default/pods", token=_token(), method="POST")


@case
def api_token_of_another_account() -> Verdict:
    return _api("/api/v1/namespaces/kube-system/serviceaccounts/default/token", token=_token(), method="POST")
