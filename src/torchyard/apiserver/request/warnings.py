"""The Warning headers of a response, within the limits of kube-apiserver (its warning recorder)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

# Characters of all warnings together, and of one warning once they exceed that.
MAX_TOTAL = 4096
MAX_TRUNCATED = 256


def limited_warnings(sentences: Iterable[str]) -> list[str]:
    """The sentences that are sent: each once, without unprintable ones, shortened if they are too long together."""
    distinct = [sentence for sentence in dict.fromkeys(sentences) if sentence and not _has_control_characters(sentence)]
    if sum(map(len, distinct)) <= MAX_TOTAL:
        return distinct
    sent: list[str] = []
    size = 0
    for sentence in distinct:
        if size >= MAX_TOTAL:
            break
        sent.append(sentence[:MAX_TRUNCATED])
        size += len(sent[-1])
    return sent


def _has_control_characters(sentence: str) -> bool:
    return not sentence.isprintable() and any(unicodedata.category(character) == "Cc" for character in sentence)
