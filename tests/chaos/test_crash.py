"""`kill -9` during a write load, repeatedly: no acknowledged write is lost, no list is torn, watches continue."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from tests.chaos.writers import COLLECTION, GONE, Follower, Key, Writer
from tests.support.effort import rounds
from tests.support.http import Client
from tests.support.process import free_port
from tests.support.waiting import eventually
from tests.support.yard import Yard

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

WRITERS, KEYS_EACH = 4, 12
ROUNDS = rounds(5, 200)


def listed(api: Client) -> tuple[int, dict[str, tuple[str, int]]]:
    """(the list's version, name → (value, version))."""
    answer = api.get(COLLECTION).json
    items = {
        item["metadata"]["name"]: (item["data"]["v"], int(item["metadata"]["resourceVersion"]))
        for item in answer["items"]
        if "v" in item.get("data", {})
    }
    return int(answer["metadata"]["resourceVersion"]), items


def judge(api: Client, writers: list[Writer]) -> None:
    """The current state is what was acknowledged, or what one unanswered request asked for."""
    version, items = listed(api)
    for writer in writers:
        assert not writer.fault, writer.fault
        assert version >= writer.latest, f"the list is at {version}, but {writer.latest} was acknowledged"
        for key in writer.keys:
            key.settle(items[key.name][0] if key.name in items else GONE)
    assert all(item_version <= version for _, item_version in items.values())
    # No list is torn: each item equals the response to a get, and pages add up to the same list.
    for name, (value, item_version) in list(items.items())[:5]:
        config_map = api.get(f"{COLLECTION}/{name}").json
        assert (config_map["data"]["v"], int(config_map["metadata"]["resourceVersion"])) == (value, item_version)
    paged: list[str] = []
    token = ""
    while True:
        page = api.get(COLLECTION, query={"limit": 7, **({"continue": token} if token else {})}).json
        paged += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert paged == [item["metadata"]["name"] for item in api.get(COLLECTION).json["items"]]


def test_nothing_acknowledged_is_lost_by_killing_the_server(tmp_path: Path) -> None:
    rng = Random(7)
    yard = Yard(tmp_path, controllers="-*", port=free_port())
    server = yard.start()
    follower = Follower(server.admin)
    follower.start()
    keys = [[Key(f"w{writer}-{index}") for index in range(KEYS_EACH)] for writer in range(WRITERS)]
    acknowledged = 0
    try:
        for number in range(ROUNDS):
            writers = [Writer(server.admin, mine, number * WRITERS + i) for i, mine in enumerate(keys)]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.02, 0.4))
            yard.kill()
            for writer in writers:
                writer.join(30)
                assert not writer.is_alive()
            server = yard.start()
            judge(server.admin, writers)
            acknowledged += sum(writer.count for writer in writers)
            truth = {name: str(version) for name, (_, version) in listed(server.admin)[1].items()}
            catches_up(follower, truth)
    finally:
        follower.stopping.set()
        yard.stop()
    assert acknowledged > 0
    # It lists once; after a crash it resumes the watch, or lists once more after a 410.
    assert follower.lists <= 1 + ROUNDS


def catches_up(follower: Follower, truth: dict[str, str]) -> None:
    """The follower's mirror reaches the server's state event by event."""

    def wrong() -> dict[str, tuple[str | None, str | None]]:
        with follower.lock:
            mirror = {name: version for name, version in follower.state.items() if name.startswith("w")}
        names = mirror.keys() | truth.keys()
        return {n: (mirror.get(n), truth.get(n)) for n in names if mirror.get(n) != truth.get(n)}

    try:
        eventually(lambda: bool(follower.fault) or not wrong(), "the follower caught up")
    except AssertionError:
        raise AssertionError(f"the follower is at {follower.version} and has (mirror, truth): {wrong()}") from None
    assert not follower.fault, follower.fault
