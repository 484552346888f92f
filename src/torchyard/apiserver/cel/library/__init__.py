"""The functions that expressions may call: CEL's own, and those Kubernetes adds."""

from __future__ import annotations

from functools import cache

from torchyard.apiserver.cel.functions import Library


@cache
def kubernetes_library() -> Library:
    """Everything a rule of a custom resource may use."""
    from torchyard.apiserver.cel.library import (
        lists,
        named_formats,
        network,
        optionals,
        quantities,
        regexes,
        semver,
        sets,
        standard,
        strings,
        times,
        urls,
    )

    parts = (
        standard,
        times,
        strings,
        lists,
        sets,
        regexes,
        urls,
        quantities,
        network,
        semver,
        named_formats,
        optionals,
    )
    return Library(*(part.FUNCTIONS for part in parts))
