"""Addresses of Services outside the range that the node has from the start: those of other ServiceCIDRs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.node import support

from torchyard.node.shim.client import ClusterNetwork, ShimRequestError


async def test_pods_reach_an_address_of_another_service_cidr_while_it_is_served(tmp_path: Path) -> None:
    support.need_network()
    async with support.shim_harness(tmp_path) as harness:
        pod = await harness.pod("a", address="10.244.0.5")
        network = ClusterNetwork(harness.root)
        servers = [await network.listen("tcp", "10.97.0.5", port) for port in (80, 81)]
        with servers[0], servers[1], await pod.connect("10.97.0.5", 80) as connection:
            assert connection.getpeername() == ("10.97.0.5", 80)
        await network.close("tcp", "10.97.0.5", 80)
        with await pod.connect("10.97.0.5", 81) as connection:  # another port of it is served
            assert connection.getpeername() == ("10.97.0.5", 81)
        await network.close("tcp", "10.97.0.5", 81)
        with pytest.raises((TimeoutError, ShimRequestError)) as failed:  # it is not refused: nothing has the address
            async with asyncio.timeout(0.2):
                await pod.connect("10.97.0.5", 81)
        assert "refused" not in str(failed.value)


async def test_an_address_of_the_pods_is_not_taken_for_a_service(tmp_path: Path) -> None:
    support.need_network()
    async with support.shim_harness(tmp_path) as harness:
        await harness.pod("a", address="10.244.0.5")
        with pytest.raises(ShimRequestError, match="Cannot assign requested address"):
            await ClusterNetwork(harness.root).listen("tcp", "10.244.0.5", 80)
