"""The plane killed at random moments under a write load: nothing acknowledged is lost, no list is torn, watches go on.

A few kills in the usual run, 200 with TORCHYARD_TESTS=full.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.effort import rounds
from tests.support.http import Client
from tests.support.yard import Yard

WRITERS = 4
AT = "/api/v1/namespaces/default/configmaps"


class Writer(threading.Thread):
    """Creates, changes and deletes config maps until the server is gone; remembers what it was told is done."""

    def __init__(self, client: Client, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._name = name
        self._random = random.Random(seed)
        self._number = 0
        self.acknowledged: dict[str, str] = {}  # name -> the value it must have
        self.deleted: set[str] = set()
        self.unsure: set[str] = set()  # asked for when the server died: may be either way
        self.revision = 0

    def run(self) -> None:
        try:
            while True:
                self._write()
        except (OSError, http.client.HTTPException):
            return

    def _write(self) -> None:
        known = list(self.acknowledged)
        what = self._random.random()
        if not known or what < 0.6:
            self._number += 1
            name, value = f"{self._name}-{self._number}", str(self._number)
            self._asked(name, "POST", AT, {"metadata": {"name": name}, "data": {"value": value}})
            self.acknowledged[name] = value
        elif what < 0.85:
            name, value = self._random.choice(known), f"changed-{self._random.random()}"
            self._asked(name, "PUT", f"{AT}/{name}", {"metadata": {"name": name}, "data": {"value": value}})
            self.acknowledged[name] = value
        else:
            name = self._random.choice(known)
            self._asked(name, "DELETE", f"{AT}/{name}", None)
            del self.acknowledged[name]
            self.deleted.add(name)

    def _asked(self, name: str, method: str, at: str, body: Any) -> None:
        self.unsure.add(name)
        answer = self._client.request(method, at, body)
        assert answer.status in (200, 201), answer
        self.revision = max(self.revision, int(answer.json["metadata"].get("resourceVersion") or 0))
        self.unsure.discard(name)


def check(client: Client, writers: list[Writer], before: dict[str, str]) -> dict[str, str]:
    """What the writers were told holds; answers the present contents."""
    listed = client.get(AT).json
    revision = int(listed["metadata"]["resourceVersion"])
    found = {one["metadata"]["name"]: one["data"]["value"] for one in listed["items"] if "data" in one}
    assert len(found) == len({one["metadata"]["uid"] for one in listed["items"] if "data" in one})
    assert all(int(one["metadata"]["resourceVersion"]) <= revision for one in listed["items"])
    for writer in writers:
        assert revision >= writer.revision
        for name, value in writer.acknowledged.items():
            if name not in writer.unsure:
                assert found.get(name) == value, f"{name} was acknowledged as {value}"
        for name in writer.deleted - writer.unsure:
            assert name not in found, f"{name} was deleted"
    touched = {name for writer in writers for name in (*writer.acknowledged, *writer.deleted, *writer.unsure)}
    for name, value in before.items():
        assert name in touched or found.get(name) == value, f"{name} was there before"
    return found


def resumes(client: Client, revision: int) -> None:
    """A watch from before the crash goes on without a gap, or says that it cannot."""
    with client.watch(AT, query={"resourceVersion": str(revision), "timeoutSeconds": "1"}) as watch:
        if watch.refusal is not None:
            assert watch.refusal.status == 410
            return
        last = revision
        while (event := watch.next_or_end()) is not None:
            if event["type"] == "ERROR":
                assert event["object"]["code"] == 410
                return
            now = int(event["object"]["metadata"]["resourceVersion"])
            assert now > last
            last = now


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_by_a_kill_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(20)
    plane = Yard(tmp_path / "plane", controllers="-*")
    contents: dict[str, str] = {}
    try:
        for crash in range(rounds(4, 200)):
            server = plane.start()
            contents = check(server.admin, [], contents) if contents else {}
            start = int(server.admin.get(AT).json["metadata"]["resourceVersion"])
            writers = [
                Writer(server.admin, f"w{crash}-{number}", chance.randrange(1 << 30)) for number in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            time.sleep(0.1 + chance.random() * 0.6)
            plane.kill()
            for writer in writers:
                writer.join(timeout=30)
                assert not writer.is_alive()
            again = plane.start()
            contents = check(again.admin, writers, contents)
            resumes(again.admin, start)
            plane.kill()
    finally:
        plane.stop()
