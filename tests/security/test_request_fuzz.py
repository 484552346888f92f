"""No request makes a plane fail, stop its event loop or keep memory, whatever its bytes are."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from tests.api.differential.test_traits import SAMPLES
from tests.security.plane_support import PlaneClient, plane_client
from tests.security.request_fuzz import NAMESPACE, FuzzedRequest, RequestFuzzer
from tests.support.effort import FULL, rounds

from torchyard.apiserver.request.response import Response
from torchyard.kube.process import tune_garbage_collector

# The loop may compute for so long at a time; requests that take longer do so in threads.
MAX_BLOCKED_SECONDS = 0.1 if FULL else 0.3
REQUESTS = rounds(2_000, 100_000)
ROUND = 1_000
MAX_GROWTH_BYTES = 64 << 20


@pytest.fixture
def tuned_garbage_collector() -> Iterator[None]:
    """Collect as the process of a plane does: a collection of everything that the tests hold would count as a block."""
    threshold = gc.get_threshold()
    tune_garbage_collector()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


@pytest.mark.usefixtures("tuned_garbage_collector")
async def test_fuzzed_requests_get_an_answer_that_blames_them(tmp_path: Path) -> None:
    seed = int(os.environ.get("TORCHYARD_FUZZ_SEED", "1"))
    failures: list[str] = []
    async with plane_client(tmp_path) as client:
        assert (
            await client.send("POST", "/api/v1/namespaces", b'{"metadata":{"name":"%s"}}' % NAMESPACE.encode())
        ).status == 201
        # the metrics API answers 503 without a node
        catalog = client.plane.server.registry.catalog
        resources = [resource for resource in catalog if resource.group != "metrics.k8s.io"]
        fuzzer = RequestFuzzer(seed, resources, SAMPLES, large=0.02)
        requests = iter(fuzzer)
        memory: list[int] = []
        for _ in range(REQUESTS // ROUND):
            for request in islice(requests, ROUND):
                if problem := await problem_of(client, request):
                    failures.append(problem)
            await remove_everything(client)
            memory.append(resident_bytes())
    assert not failures, "\n".join([f"{len(failures)} failures", *failures[:20]])
    first = memory[len(memory) // 3]
    assert memory[-1] - first < MAX_GROWTH_BYTES, [size >> 20 for size in memory]


async def problem_of(client: PlaneClient, request: FuzzedRequest) -> str:
    client.monitor.reset()
    response = await client.send(
        request.method, request.path, request.body, query=request.query, headers=request.headers
    )
    await asyncio.sleep(0)
    if is_failure(response):
        body = response.body[:300] if isinstance(response.body, bytes) else b""
        return f"{response.status} {body!r}: {request}"
    if client.monitor.longest > MAX_BLOCKED_SECONDS:
        return f"blocked for {client.monitor.longest:.3f} s: {request}"
    return ""


def is_failure(response: Response) -> bool:
    """Say whether an answer is one that upstream would not give. Upstream, too, answers with 501, with the 504 for a
    revision of the future, and with the 500 for a Service for which no ServiceCIDR is left."""
    if response.status < 500 or response.status == 501:
        return False
    body = response.body if isinstance(response.body, bytes) else b""
    expected = {504: b"Too large resource version", 500: b"failed to allocate a serviceIP: range is full"}
    return response.status not in expected or expected[response.status] not in body


async def remove_everything(client: PlaneClient) -> None:
    """Delete what the requests created, finalizers or not, so that a plane of constant size remains."""
    registry = client.plane.server.registry
    for resource in registry.catalog:
        if "deletecollection" not in resource.verbs or not resource.namespaced:
            continue
        prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        path = f"{prefix}/namespaces/{NAMESPACE}/{resource.plural}"
        records = [
            record
            for record in registry.store.collection(f"/{resource.plural}/").all()
            if f"/{NAMESPACE}/" in record.key
        ]
        for record in records:
            body = b'{"metadata":{"finalizers":null}}'
            await client.send(
                "PATCH",
                f"{path}/{record.key.rpartition('/')[2]}",
                body,
                headers={"Content-Type": "application/merge-patch+json"},
            )
        await client.send("DELETE", path, b'{"gracePeriodSeconds":0,"propagationPolicy":"Background"}')
        await asyncio.sleep(0)
    for _ in registry.store.compaction(keep_seconds=0, keep_revisions=0):
        await asyncio.sleep(0)
    gc.collect()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
