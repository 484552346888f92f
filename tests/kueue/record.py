"""Runs scenarios on the real Kueue and writes what was observed into `recorded.json`.

    python -m tests.kueue.record [NAME...]

`NAME`: of a scenario or of a module. Without names all scenarios run. Answers of other scenarios stay as they are.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kueue.harness import SCRIPTS, Observation
from tests.kueue.peers import kueue
from tests.kueue.scenarios import CONFIGURED_MODULES, MODULES, RECORDED, configuration_of, gates_of, scripts_of
from tests.support.kubernetes import Server

_CONCURRENT = 8


def run(
    server: Server, names: list[str], expected: dict[str, list[Observation]] | None = None
) -> dict[str, list[Observation]]:
    """What each scenario observed. Several run at the same time; they share only the server.

    One that fails ends with its error as its last observation.
    """
    numbers = {name: number for number, name in enumerate(SCRIPTS)}

    def one(name: str) -> list[Observation]:
        script, scenario_class = SCRIPTS[name]
        wanted = None if expected is None else expected.get(name)
        running = scenario_class(server.admin, f"s{numbers[name]:03}x-", wanted)
        try:
            script(running)
        except AssertionError as error:
            running.results.append({"failed": str(error)})
        return running.results

    with ThreadPoolExecutor(_CONCURRENT) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def run_on_kueue(names: list[str], directory: Path) -> dict[str, list[Observation]]:
    """Those of modules with the same configuration run on the same Kueue."""
    observed: dict[str, list[Observation]] = {}
    for number, modules in enumerate([MODULES, *((module,) for module in CONFIGURED_MODULES)]):
        chosen = [name for module in modules for name in scripts_of(module) if name in names]
        if chosen:
            own, first = directory / str(number), modules[0]
            own.mkdir()
            with kueue(own, gates_of(first), configuration_of(first)) as server:
                observed |= run(server, chosen)
    return observed


def _names(argument: str) -> list[str]:
    modules = {module.__name__.rsplit(".", 1)[1]: module for module in (*MODULES, *CONFIGURED_MODULES)}
    return scripts_of(modules[argument]) if argument in modules else [argument]


def main() -> None:
    names = [name for argument in sys.argv[1:] for name in _names(argument)]
    with tempfile.TemporaryDirectory() as directory:
        observed = run_on_kueue(names or list(SCRIPTS), Path(directory))
    failed = {name: results[-1] for name, results in observed.items() if "failed" in results[-1]}
    observed = {name: results for name, results in observed.items() if name not in failed}
    recorded = (json.loads(RECORDED.read_text()) if RECORDED.exists() else {}) | observed
    known = {name: recorded[name] for name in SCRIPTS if name in recorded}
    lines = (f"{json.dumps(name)}:{json.dumps(known[name], sort_keys=True)}" for name in sorted(known))
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    if failed:
        raise SystemExit(f"not recorded: {json.dumps(failed, indent=1)}")


if __name__ == "__main__":
    main()
