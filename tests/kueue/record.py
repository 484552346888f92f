"""Runs scenarios on the real Kueue and writes what was observed into `recorded.json`.

    python -m tests.kueue.record [NAME...]

Without names all scenarios run. Answers of other scenarios stay as they are.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kueue.harness import SCRIPTS, Observation, Scenario
from tests.kueue.peers import kueue
from tests.kueue.scenarios import RECORDED
from tests.support.kubernetes import Server

_CONCURRENT = 8


def run(
    server: Server, names: list[str], expected: dict[str, list[Observation]] | None = None
) -> dict[str, list[Observation]]:
    """What each scenario observed. Several run at the same time; they share only the server."""
    numbers = {name: number for number, name in enumerate(SCRIPTS)}

    def one(name: str) -> list[Observation]:
        running = Scenario(server.admin, f"s{numbers[name]:03}x-", None if expected is None else expected.get(name))
        SCRIPTS[name](running)
        return running.results

    with ThreadPoolExecutor(_CONCURRENT) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def main() -> None:
    names = sys.argv[1:] or list(SCRIPTS)
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as directory, kueue(Path(directory)) as server:
        recorded |= run(server, names)
    known = {name: recorded[name] for name in SCRIPTS if name in recorded}
    RECORDED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
