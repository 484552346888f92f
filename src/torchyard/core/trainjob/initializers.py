"""What the initializers of a TrainJob need beside their variables: the claim of a `pvc://` URI."""

from __future__ import annotations

from urllib.parse import urlsplit

from torchyard.api.objects import Object
from torchyard.api.trainjob import names

# The directory is `CLAIM_DIRECTORY` of `torchyard.initializer.request`. Neither package may import the other: the
# initializer runs in images that have only it. A test compares them.
_CLAIM_VOLUME, _CLAIM_DIRECTORY = "torchyard-claim", "/var/run/torchyard/claim"


def initializer_of(job: Object, step: str) -> Object | None:
    """What the job says about the initializer of a step; None for other steps."""
    kind = next((kind for kind, name in names.INITIALIZERS.items() if name == step), None)
    initializer: Object | None = (job["spec"].get("initializer") or {}).get(kind)
    return initializer


def initializer_claim(job: Object, step: str) -> str:
    """The claim in a URI such as `pvc://claim/mnist`; empty for other URIs."""
    uri = (initializer_of(job, step) or {}).get("storageUri") or ""
    try:
        parts = urlsplit(uri)
    except ValueError:  # the initializer says what is wrong with it
        return ""
    return parts.netloc if parts.scheme == "pvc" else ""


def claim_volume(claim: str) -> Object:
    return {"name": _CLAIM_VOLUME, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def claim_mount() -> Object:
    return {"name": _CLAIM_VOLUME, "mountPath": _CLAIM_DIRECTORY, "readOnly": True}
