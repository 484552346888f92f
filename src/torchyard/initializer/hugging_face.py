"""Datasets and models of the Hugging Face Hub (`hf://owner/name`)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torchyard.initializer.errors import InitializerError
from torchyard.initializer.request import InitializerRequest

_INSTALL = "install huggingface_hub in the image of the initializer: pip install huggingface_hub"


def bring_snapshot(request: InitializerRequest, target: Path) -> int:
    """Download a snapshot; returns the number of files. The library resumes a download that was interrupted."""
    parts = [request.location, *request.path.strip("/").split("/")]
    if len(parts) != 2 or not all(parts):
        raise request.error("does not name a repository", "use hf://owner/name")
    hub = _library(request)
    try:
        hub.snapshot_download(
            repo_id="/".join(parts),
            repo_type=request.kind,
            local_dir=str(target),
            token=request.variables.get("ACCESS_TOKEN") or None,
            ignore_patterns=list(request.ignored) or None,
        )
    except Exception as error:  # the library has many kinds, and those of its HTTP client
        raise _explained(request, error) from error
    return sum(1 for path in target.rglob("*") if path.is_file() and ".cache" not in path.relative_to(target).parts)


def _library(request: InitializerRequest) -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise request.error(f"needs the package huggingface_hub, which this image lacks ({error})", _INSTALL) from None


def _explained(request: InitializerRequest, error: Exception) -> InitializerError:
    name = type(error).__name__
    if name == "GatedRepoError" or getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
        reason = f"{request.uri!r} may not be read with this token ({name})"
        fix = "set it to a token that may, or name a Secret with the key ACCESS_TOKEN in secretRef"
        return InitializerError(request.variable_field("ACCESS_TOKEN"), reason, fix)
    if name == "RepositoryNotFoundError":
        return request.error("does not exist on the Hub", "correct the name, or set ACCESS_TOKEN if it is private")
    fix = "check the network of the pod; the initializer may be started again, and goes on where it was"
    return request.error(f"cannot be downloaded: {name}: {str(error).strip()[:500]}", fix)
