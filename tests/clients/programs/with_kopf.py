"""kopf: an operator that adopts ConfigMaps, keeps a finalizer on them and says when they go."""

# mypy: disable-error-code="untyped-decorator"
# kopf is not installed where mypy runs.

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import kopf

NAMESPACE = sys.argv[1]
said: list[str] = []
done = threading.Event()


def say(word: str) -> None:
    if word not in said:
        said.append(word)
        print(word, flush=True)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = True
    settings.persistence.finalizer = "kopf.torchyard.dev/finalizer"


@kopf.on.create("", "v1", "configmaps", labels={"kopf": "yes"})
def created(name: str, body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
    patch.metadata.annotations["torchyard.dev/adopted"] = "yes"
    kopf.info(body, reason="Adopted", message=f"adopted {name}")
    say("create")


@kopf.on.event("", "v1", "configmaps", labels={"kopf": "yes"})
def seen(**_: Any) -> None:
    say("watch")


@kopf.on.update("", "v1", "configmaps", field="data", labels={"kopf": "yes"})
def updated(**_: Any) -> None:
    say("patch")


@kopf.on.delete("", "v1", "configmaps", labels={"kopf": "yes"})
def deleted(**_: Any) -> None:
    say("delete")
    threading.Timer(1.0, done.set).start()


async def main() -> None:
    stop = asyncio.Event()
    operator = asyncio.create_task(kopf.operator(namespaces=[NAMESPACE], stop_flag=stop))
    while not done.is_set() and not operator.done():
        await asyncio.sleep(0.1)
    stop.set()
    await operator


asyncio.run(main())
