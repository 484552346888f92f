"""Which controllers run, in kube-controller-manager's syntax: `*`, `a,b`, `*,-a`, `-*`."""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.api.errors import YardError


def select_controllers(text: str, known: Iterable[str]) -> frozenset[str]:
    """The selected names: `name` or `-name` decides for that name, `*` or `-*` for all others."""
    names = list(known)
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    unknown = [entry for entry in entries if entry.lstrip("-") not in ("*", *names)]
    if unknown:
        raise YardError(
            f"--controllers names unknown controllers: {', '.join(repr(entry.lstrip('-')) for entry in unknown)}",
            hint=f"known: {', '.join(sorted(names))}",
            code="UnknownController",
        )
    everything = "*" in entries and "-*" not in entries
    return frozenset(name for name in names if name in entries or (everything and f"-{name}" not in entries))
