"""Which cluster a command uses if none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.kube.kubeconfig import KubeconfigError
from torchyard.yard.target import resolve_connection

CONFIG = """
apiVersion: v1
kind: Config
current-context: {name}
contexts: [{{name: {name}, context: {{cluster: {cluster}}}}}]
clusters: [{{name: here, cluster: {{server: "{server}"}}}}]
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    plane = CONFIG.format(name="torchyard", cluster="here", server="https://plane")
    (tmp_path / "state").mkdir()
    (tmp_path / "state/kubeconfig").write_text(plane)
    monkeypatch.setattr("torchyard.yard.target.default_state", lambda: tmp_path / "state")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return tmp_path


def test_the_plane_is_used_if_no_cluster_is_configured(state: Path) -> None:
    assert resolve_connection().server == "https://plane"
    (state / "config").write_text("apiVersion: v1\nkind: Config\n")
    assert resolve_connection().server == "https://plane"
    (state / "config").write_text(CONFIG.format(name="other", cluster="here", server="https://other"))
    assert resolve_connection().server == "https://other"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONFIG.format(name="other", cluster="gone", server="https://other"), 'has no cluster "gone"'),
        ("root:x:0:0\n", "is not a valid kubeconfig"),
        ("a: [\n", "is not a valid kubeconfig"),
    ],
)
def test_a_kubeconfig_that_is_not_valid_does_not_lead_to_another_cluster(
    state: Path, content: str, message: str
) -> None:
    (state / "config").write_text(content)
    with pytest.raises(KubeconfigError, match=message):
        resolve_connection()
