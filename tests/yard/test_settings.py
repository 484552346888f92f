"""What `yard up` goes by where it is told nothing."""

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
def test_a_node_is_called_as_its_machine_as_far_as_a_node_may_be(
    host: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert default_node_name() == name
    assert not subdomain_problems(name) + label_value_problems(name)


def test_who_has_no_home_is_told_to_name_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(YardError, match="no home directory") as refused:
        default_state()
    assert "--state" in refused.value.hint
