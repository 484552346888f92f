"""The defaults of `yard up`."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from torchyard.api.errors import YardError
from torchyard.api.names import label_value_problems, subdomain_problems
from torchyard.yard.settings import default_node_name, default_state


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("desk", "desk"),
        ("Desk.example.com", "desk.example.com"),
        ("my_old laptop", "my-old-laptop"),
        ("-odd-.-", "odd"),
        ("___", "node"),
        ("a" * 62 + ".b" * 40, "a" * 62),
    ],
)
def test_the_node_name_is_the_host_name_made_valid(host: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert default_node_name() == name
    assert not subdomain_problems(name) + label_value_problems(name)


def test_without_a_home_directory_the_error_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(YardError, match="no home directory") as refused:
        default_state()
    assert "--state" in refused.value.hint
