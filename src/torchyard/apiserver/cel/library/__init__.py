"""The functions that expressions can call: CEL's own, and those that Kubernetes adds.

CEL: `standard` (operators, conversions), `times`, `strings`, `string_format`, `lists`, `sets`, `optionals`.
Kubernetes: `regexes`, `urls`, `quantities`, `network`, `semver`, `named_formats`.
"""

from __future__ import annotations

from functools import cache

from torchyard.apiserver.cel.functions import Library


@cache
def kubernetes_library() -> Library:
    """All functions that validation rules and admission policies can use."""
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
