"""The recorded verdicts of kube-apiserver 1.34 about every case, for tests without a real server.

`python -m tests.api.differential.recorded` records them again.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path

from tests.api.differential import (
    cases_cluster,
    cases_job,
    cases_other,
    cases_pod,
    cases_service,
    cases_volume,
    cases_workload,
)
from tests.api.differential.real import Judge, Judgement
from tests.api.differential.verdict import Case, Verdict
from tests.support.kubernetes import Kubernetes

FILE = Path(__file__).with_name("recorded.json")
_MODULES = (cases_cluster, cases_job, cases_other, cases_pod, cases_service, cases_volume, cases_workload)

CASES: dict[str, Case] = {
    f"{module.__name__.rpartition('_')[2]}: {case.name}": case for module in _MODULES for case in module.CASES
}


@cache
def judgements() -> dict[str, Judgement]:
    """Return the recorded judgements by the name of the case."""
    return {name: _read(line) for name, line in json.loads(FILE.read_text()).items()}


def _read(line: dict[str, object]) -> Judgement:
    created = line.pop("stored", {})
    assert isinstance(created, dict)
    verdict = Verdict(**{"accepted": False, **line})  # type: ignore[arg-type]
    verdict.causes = [(cause[0], cause[1], cause[2]) for cause in verdict.causes]
    return Judgement(verdict, created)


def as_line(judgement: Judgement) -> dict[str, object]:
    """Return a judgement as it is recorded, without empty fields."""
    fields = {**asdict(judgement.verdict), "stored": judgement.stored}
    fields.pop("message")
    return json.loads(json.dumps({name: value for name, value in fields.items() if value}))  # type: ignore[no-any-return]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Kubernetes(Path(directory)) as server:
        judge = Judge(server.admin)
        lines = [f"{json.dumps(name)}: {json.dumps(as_line(judge.judge(case)))}" for name, case in CASES.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} cases recorded in {FILE}")


if __name__ == "__main__":
    main()
