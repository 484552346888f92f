"""What an initializer brings, from the variables of its container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote, urlsplit

from torchyard.initializer.errors import InitializerError

DATASET, MODEL = "dataset", "model"
TARGETS = {DATASET: Path("/workspace/dataset"), MODEL: Path("/workspace/model")}
# Where `core.trainjob.initializers` mounts the claim of a `pvc://` URI.
CLAIM_DIRECTORY = Path("/var/run/torchyard/claim")
SCHEMES = ("file", "pvc", "hf", "s3")
# Weights of other frameworks, which Trainer leaves out of models too.
_MODEL_IGNORE = ("*.msgpack", "*.h5", "*.bin", ".pt", ".pth")


@dataclass(frozen=True, slots=True)
class InitializerRequest:
    """`location` is the host of the URI: a claim, a bucket, an owner. `path` is without a slash at the beginning."""

    kind: str
    uri: str
    scheme: str
    location: str
    path: str
    ignored: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # may have credentials

    @property
    def uri_field(self) -> str:
        return f"spec.initializer.{self.kind}.storageUri"

    def variable_field(self, name: str) -> str:
        return f"spec.initializer.{self.kind}.env[{name}]"

    def error(self, reason: str, fix: str) -> InitializerError:
        return InitializerError(self.uri_field, f"{self.uri!r} {reason}", fix)

    def is_ignored(self, path: str) -> bool:
        return any(fnmatch(path, pattern) or fnmatch(Path(path).name, pattern) for pattern in self.ignored)


def parse_request(kind: str, variables: Mapping[str, str]) -> InitializerRequest | None:
    """None without a URI: there is nothing to bring. Raises `InitializerError`."""
    uri = variables.get("STORAGE_URI", "")
    if not uri:
        return None
    place = f"spec.initializer.{kind}.storageUri"
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise InitializerError(place, f"{uri!r} is not a URI ({error})", _examples()) from None
    if parts.scheme not in SCHEMES:
        raise InitializerError(place, f"{uri!r} has the scheme {parts.scheme!r}, which is not supported", _examples())
    if parts.query or parts.fragment:
        raise InitializerError(place, f"{uri!r} has a query or a fragment", "remove what comes after ? or #")
    listed = variables.get("IGNORE_PATTERNS")
    default = _MODEL_IGNORE if kind == MODEL else ()
    ignored = tuple(filter(None, map(str.strip, listed.split(",")))) if listed is not None else default
    path = unquote(parts.path).lstrip("/")
    return InitializerRequest(kind, uri, parts.scheme, parts.netloc, path, ignored, dict(variables))


def _examples() -> str:
    return "use file:///data/mnist, pvc://claim/mnist, hf://owner/name or s3://bucket/mnist"
