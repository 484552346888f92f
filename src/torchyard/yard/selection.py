"""Which controllers run, in kube-controller-manager's syntax: `*`, `a,b`, `*,-a`, `-*`."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.errors import YardError


def select_controllers(text: str, known: Iterable[str]) -> frozenset[str]:
    """The names meant by a list: a name or `-name` decides for itself, `*` or `-*` for all others."""
    names = list(known)
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word.lstrip("-") not in ("*", *names)]
    if unknown:
        raise YardError(
            f"--controllers names {', '.join(repr(word.lstrip('-')) for word in unknown)}, which does not exist",
            hint=f"known: {', '.join(sorted(names))}",
            code="UnknownController",
        )
    everything = "*" in words and "-*" not in words
    return frozenset(name for name in names if name in words or (everything and f"-{name}" not in words))
