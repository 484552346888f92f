"""A write load that records what was acknowledged, and a follower that mirrors a collection by list and watch."""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.http import Answer, Client

COLLECTION = "/api/v1/namespaces/default/configmaps"
GONE = "gone"


@dataclass
class Key:
    """One object: the acknowledged state, and what an unanswered request may have made of it."""

    name: str
    acknowledged: str = GONE
    possible: list[str] = field(default_factory=list)

    def settle(self, actual: str) -> None:
        """After a crash the object is what was acknowledged, or what the last, unanswered request asked for."""
        assert actual in (self.acknowledged, *self.possible), (
            f"{self.name} is {actual}; acknowledged was {self.acknowledged}, unanswered {self.possible}"
        )
        self.acknowledged, self.possible = actual, []


class Writer(threading.Thread):
    """Creates, changes and deletes its own keys as fast as it can until stopped or the server is down."""

    def __init__(self, client: Client, keys: list[Key], seed: int) -> None:
        super().__init__(daemon=True)
        self.client, self.keys, self.rng = client, keys, Random(seed)
        self.stopping = threading.Event()
        self.latest = 0  # the highest acknowledged version
        self.count = 0
        self.fault = ""

    def run(self) -> None:
        while not self.stopping.is_set():
            key = self.rng.choice([key for key in self.keys if not key.possible] or [None])
            if key is None or not self._write(key):
                return

    def _write(self, key: Key) -> bool:
        wanted, method, at, body = self._next(key)
        key.possible = [wanted]
        try:
            headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
            answer = self.client.once(method, at, body, headers=headers)
        except (OSError, http.client.HTTPException):
            return False  # unanswered: it may have been applied
        return self._acknowledge(key, wanted, answer)

    def _next(self, key: Key) -> tuple[str, str, str, Any]:
        value = str(self.rng.randrange(10**9))
        if key.acknowledged == GONE:
            return value, "POST", COLLECTION, {"metadata": {"name": key.name}, "data": {"v": value, "pad": "x" * 500}}
        at = f"{COLLECTION}/{key.name}"
        if self.rng.random() < 0.2:
            return GONE, "DELETE", at, None
        return value, "PATCH", at, {"data": {"v": value}}

    def _acknowledge(self, key: Key, wanted: str, answer: Answer) -> bool:
        if answer.status not in (200, 201):
            if answer.status != 503:  # a server that shuts down may say so
                self.fault = f"{key.name}: {answer!r}"
            return False
        key.acknowledged, key.possible = wanted, []
        self.count += 1
        if wanted != GONE:
            self.latest = max(self.latest, int(answer.json["metadata"]["resourceVersion"]))
        return True


class Follower(threading.Thread):
    """A client's cache: list once, then watch; list again only if the version is too old."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.lock = threading.Lock()
        self.state: dict[str, str] = {}  # name → version
        self.version = ""
        self.lists = 0
        self.stopping = threading.Event()
        self.fault = ""

    def run(self) -> None:
        while not self.stopping.is_set() and not self.fault:
            try:
                if self.version:
                    self._watch()
                else:
                    self._list()
            except (OSError, http.client.HTTPException, AssertionError, KeyError, ValueError):
                self.stopping.wait(0.05)

    def _list(self) -> None:
        listed = self.client.once("GET", COLLECTION).json
        self.lists += 1
        with self.lock:
            self.state = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
            self.version = listed["metadata"]["resourceVersion"]

    def _watch(self) -> None:
        with self.client.watch(COLLECTION, query={"resourceVersion": self.version}) as watch:
            if watch.refusal is not None:
                self._refused(watch.refusal.status, str(watch.refusal))
                return
            while not self.stopping.is_set() and (event := watch.next_or_end(5)) is not None:
                if event["type"] == "ERROR":
                    self._refused(event["object"]["code"], str(event))
                    return
                self._apply(event["type"], event["object"]["metadata"])

    def _refused(self, status: int, message: str) -> None:
        if status == 410:
            self.version = ""
        elif status not in (503, 504):
            self.fault = message

    def _apply(self, kind: str, metadata: dict[str, Any]) -> None:
        name, version = metadata["name"], metadata["resourceVersion"]
        with self.lock:
            if int(version) <= int(self.version):
                self.fault = f"{kind} {name} at {version} after {self.version}: the stream went back"
            known = self.state.get(name)
            if (kind == "ADDED") == (known is not None):
                self.fault = f"{kind} of {name} at {version}, which was known as {known}"
            if kind == "DELETED":
                self.state.pop(name, None)
            else:
                self.state[name] = version
            self.version = version
