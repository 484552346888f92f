"""kopf: an operator that handles ConfigMaps, adds a finalizer to them and reports their deletion."""

# mypy: disable-error-code="untyped-decorator"
# kopf is not installed where mypy runs.

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import kopf

NAMESPACE = sys.argv[1]
lines: list[str] = []
finished = threading.Event()


def report(step: str) -> None:
    if step not in lines:
        lines.append(step)
        print(step, flush=True)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = True
    settings.persistence.finalizer = "kopf.torchyard.dev/finalizer"


@kopf.on.create("", "v1", "configmaps", labels={"kopf": "yes"})
def created(name: str, body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
    patch.metadata.annotations["torchyard.dev/adopted"] = "yes"
    kopf.info(body, reason="Adopted", message=f"adopted {name}")
    report("create")


@kopf.on.event("", "v1", "configmaps", labels={"kopf": "yes"})
def on_event(**_: Any) -> None:
    report("watch")


@kopf.on.update("", "v1", "configmaps", field="data", labels={"kopf": "yes"})
def updated(**_: Any) -> None:
    report("patch")


@kopf.on.delete("", "v1", "configmaps", labels={"kopf": "yes"})
def deleted(**_: Any) -> None:
    report("delete")
    threading.Timer(1.0, finished.set).start()


async def main() -> None:
    stop = asyncio.Event()
    operator = asyncio.create_task(kopf.operator(namespaces=[NAMESPACE], stop_flag=stop))
    while not finished.is_set() and not operator.done():
        await asyncio.sleep(0.1)
    stop.set()
    await operator


asyncio.run(main())
