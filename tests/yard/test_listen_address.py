"""Where a plane listens, and what its certificate must say."""

from __future__ import annotations

import ipaddress

import pytest

from torchyard.api.errors import YardError
from torchyard.yard.listen_address import ListenAddress, resolve_listen_address


@pytest.mark.parametrize("address", ["127.0.0.1", "192.0.2.7", "::1"])
def test_an_address_stands_for_itself(address: str) -> None:
    assert resolve_listen_address(address) == ListenAddress(address, (address,))


@pytest.mark.parametrize(("everywhere", "here"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_who_listens_everywhere_is_reached_on_every_address_of_the_machine(everywhere: str, here: str) -> None:
    found = resolve_listen_address(everywhere)
    assert found.address == here
    assert "127.0.0.1" in found.names
    assert all(ipaddress.ip_address(name) for name in found.names)  # the certificate knows how to write them


def test_a_name_holds_beside_its_addresses() -> None:
    found = resolve_listen_address("localhost")
    assert found.names[:2] == ("localhost", found.address)


def test_a_name_of_nothing_is_refused_with_the_option_to_mend() -> None:
    with pytest.raises(YardError, match=r"cannot listen on no.such.host.invalid") as refused:
        resolve_listen_address("no.such.host.invalid")
    assert "--host" in refused.value.hint
