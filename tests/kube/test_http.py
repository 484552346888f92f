"""The HTTP transport against an embedded server: credentials that change during requests and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from torchyard.api.gvr import CONFIG_MAPS
from torchyard.apiserver.access.certificate_dir import CertificateDir
from torchyard.kube.client import Client, Unreachable
from torchyard.kube.http import HttpTransport
from torchyard.kube.kubeconfig import Connection, load
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """A connection with a token file, as pods have."""
    settings = PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)
    async with Plane(settings):
        loaded = load(settings.kubeconfig)
        token = tmp_path / "token"
        token.write_text(loaded.token)
        yield replace(loaded, token="", token_file=token)


async def test_a_watch_continues_after_the_token_is_renewed(connection: Connection) -> None:
    transport = HttpTransport(connection, user_agent="test")
    client = Client(transport, manager="test")
    stream = client.watch(CONFIG_MAPS, "default", initial=True)
    while (await anext(stream)).type != "BOOKMARK":
        pass
    await transport._credentials.current(renew=True)
    await client.create(CONFIG_MAPS, {"metadata": {"name": "news"}}, "default")
    async with asyncio.timeout(30):
        event = await anext(stream)
    assert event.object["metadata"]["name"] == "news"
    await stream.aclose()
    await client.close()
    await asyncio.sleep(0.05)  # aborted connections close in the next turns of the event loop


async def test_concurrent_requests_share_one_session(connection: Connection) -> None:
    transport = HttpTransport(connection, user_agent="test")
    client = Client(transport, manager="test")
    await asyncio.gather(*(client.list(CONFIG_MAPS, "default") for _ in range(8)))
    assert transport._retired == []
    await client.close()
    await asyncio.sleep(0.05)  # aborted connections close in the next turns of the event loop


async def test_a_server_with_the_certificate_of_another_authority_is_called_untrusted(
    connection: Connection, tmp_path: Path
) -> None:
    other = CertificateDir(PlaneSettings(state=tmp_path / "state").credentials).front_proxy_authority
    client = Client(HttpTransport(replace(connection, authority=other.read_bytes()), user_agent="test"), manager="test")
    with pytest.raises(Unreachable, match=r"is not trusted: .*CERTIFICATE_VERIFY_FAILED") as raised:
        await client.list(CONFIG_MAPS, "default")
    assert "is certificate-authority of" in raised.value.hint
    await client.close()
