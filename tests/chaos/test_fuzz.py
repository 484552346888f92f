"""Invalid requests to every endpoint: never a 5xx, a hang or a traceback, and the server's state does not change."""

from __future__ import annotations

import http.client
import json
from collections import Counter, deque
from collections.abc import Iterator
from urllib.parse import quote

import psutil
import pytest
from hypothesis import example, given
from tests.chaos.requests import GOOD, HOMES, Request, requests
from tests.support.draw import examples
from tests.support.kubernetes import Server
from tests.support.yard import Yard

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

THINGS = {
    "metadata": {"name": "thingies.fuzz.torchyard.dev"},
    "spec": {
        "group": "fuzz.torchyard.dev",
        "scope": "Namespaced",
        "names": {"plural": "thingies", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n"},
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "data": {"type": "string", "nullable": True},
                                },
                                "x-kubernetes-validations": [{"rule": "!has(self.replicas) || self.replicas < 9"}],
                            }
                        },
                    }
                },
            }
        ],
    },
}
# Only a hang is an error: the machine may be busy.
PATIENCE = 60
ALLOWED = {
    501: "what is not served says so by name",
    504: "a version from the future is a timeout in the real server too",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A server of its own, because no other test should use it afterwards."""
    yard = Yard(tmp_path_factory.mktemp("fuzz"))
    with yard as server:
        server.admin.post("/api/v1/namespaces", {"metadata": {"name": "fuzz"}})
        server.admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", THINGS)
        yield yard


@pytest.fixture(scope="module")
def prober(ours: Yard) -> Iterator[Prober]:
    prober = Prober(ours.server())
    yield prober
    prober.connection.close()


class Prober:
    """Sends one request after the other over one connection and checks the responses."""

    def __init__(self, server: Server) -> None:
        self.client = server.admin
        self.connection = self.client.connect(timeout=PATIENCE)
        self.answers: Counter[int] = Counter()
        # The previous request may be the cause.
        self.latest: deque[Request] = deque(maxlen=2)

    def populate(self) -> None:
        """Create the objects that most requests name, so that requests reach the handlers."""
        for root, resources in HOMES.items():
            for resource in GOOD.keys() & set(resources):
                for name in ("a", "b"):
                    self.client.post(
                        f"{root}/namespaces/fuzz/{resource}", {"metadata": {"name": name}, **GOOD[resource]}
                    )

    def send(self, request: Request) -> None:
        if self.answers.total() % 100 == 0:
            self.populate()
        self.latest.append(request)
        path = quote(request.path, safe="/%?&=;:@,()!+*$'\\~")
        headers = {"Authorization": f"Bearer {self.client.token}", **request.headers}
        try:
            self.connection.request(request.method, path, request.body, headers)
            response = self.connection.getresponse()
            streaming = response.status == 200 and "watch" in path and response.getheader("Transfer-Encoding")
            body = b"" if streaming else response.read()
        except (OSError, http.client.HTTPException) as error:
            self._reconnect()
            raise self._fault(f"{type(error).__name__}: {error}") from error
        self.answers[response.status] += 1
        if streaming or response.status == 101:
            self._reconnect()
        elif response.status >= 500 and response.status not in ALLOWED:
            raise self._fault(f"{response.status} {body[:600]!r}")
        elif response.status >= 400:
            self._judge_refusal(response, body)

    def _judge_refusal(self, response: http.client.HTTPResponse, body: bytes) -> None:
        if b"Traceback" in body or b'File "' in body:
            raise self._fault(f"a traceback: {body[:600]!r}")
        if body and response.getheader("Content-Type", "").startswith("application/json"):
            status = json.loads(body)
            if status["kind"] != "Status" or status["code"] != response.status or not status["message"]:
                raise self._fault(f"{response.status} is no whole Status: {body[:600]!r}")

    def _fault(self, problem: str) -> AssertionError:
        lines = [f"{item.method} {item.path} {item.headers} {(item.body or b'')[:300]!r}" for item in self.latest]
        return AssertionError("\n    ".join([*lines, f"→ {problem}"]))

    def _reconnect(self) -> None:
        self.connection.close()
        self.connection = self.client.connect(timeout=PATIENCE)


# One request is always valid: if it were rejected, all others would be rejected for the same reason.
GOOD_ONE = Request(
    "POST",
    "/api/v1/namespaces/fuzz/configmaps",
    {"Content-Type": "application/json"},
    b'{"metadata":{"generateName":"good-"}}',
)


@examples(usual=800, full=10_000)
@example(request=GOOD_ONE)
@given(request=requests())
def test_invalid_requests_are_rejected_without_a_server_error(prober: Prober, request: Request) -> None:
    prober.send(request)


def test_the_server_is_unchanged_after_invalid_requests(ours: Yard, prober: Prober) -> None:
    # Requests that never get past routing would prove little.
    assert {200, 201, 400, 404, 405, 415, 422} <= prober.answers.keys(), prober.answers
    assert ours.process is not None
    assert ours.process.running
    assert ours.server().admin.get("/readyz").text == "ok"
    assert "Traceback" not in ours.log.read_text()
    assert psutil.Process(ours.process.pid).memory_info().rss < 400 << 20
