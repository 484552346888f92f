"""Where a plane listens, and the names in its certificate."""

from __future__ import annotations

import ipaddress

import pytest

from torchyard.api.errors import YardError
from torchyard.yard.listen_address import ListenAddress, resolve_listen_address


@pytest.mark.parametrize("address", ["127.0.0.1", "192.0.2.7", "::1"])
def test_an_address_resolves_to_itself(address: str) -> None:
    assert resolve_listen_address(address) == ListenAddress(address, (address,))


@pytest.mark.parametrize(("everywhere", "here"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_listening_on_every_address_lists_all_addresses_of_the_machine(everywhere: str, here: str) -> None:
    listen_address = resolve_listen_address(everywhere)
    assert listen_address.address == here
    assert "127.0.0.1" in listen_address.names
    assert all(ipaddress.ip_address(name) for name in listen_address.names)  # valid in the certificate


def test_a_host_name_is_listed_with_its_addresses() -> None:
    listen_address = resolve_listen_address("localhost")
    assert listen_address.names[:2] == ("localhost", listen_address.address)


def test_an_unknown_host_name_is_rejected_with_the_option_to_use() -> None:
    with pytest.raises(YardError, match=r"cannot listen on no.such.host.invalid") as refused:
        resolve_listen_address("no.such.host.invalid")
    assert "--host" in refused.value.hint
