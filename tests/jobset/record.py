"""Runs the cases with upstream's JobSet manager and writes what was observed into `recorded.json`.

    python -m tests.jobset.record KUBECONFIG [random|restart-job|refusals]...

KUBECONFIG is that of a real Kubernetes on which the manager of JobSet 0.12.0 runs; `restart-job` needs its feature gate
RestartJob, the others its defaults.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.jobset.cases import Case, random_cases, restart_job_cases
from tests.jobset.run_cases import Runner, refused, run, settle_by_silence
from tests.support.kubernetes import from_kubeconfig

RECORDED = Path(__file__).parent / "recorded.json.xz"
_SILENCE = 12.0


def load() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return recorded


def _cases(part: str) -> list[Case]:
    return random_cases() if part == "random" else restart_job_cases()


def main() -> None:
    kubeconfig, *parts = sys.argv[1:]
    recorded = load() if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as directory:
        client = from_kubeconfig("kube", Path(kubeconfig), Path(directory)).admin
        for part in parts or ("random", "refusals"):
            if part == "refusals":
                recorded[part] = refused(client, f"t{int(time.time()) % 100_000}-refusals")
                continue
            runner = Runner(client, _cases(part), f"t{int(time.time()) % 100_000}-")
            points = run(runner, settle_by_silence(runner, _SILENCE))
            recorded[part] = {
                case.name: {"answers": runner.answers[case.name], "points": points[case.name]} for case in runner.cases
            }
    RECORDED.write_bytes(lzma.compress(json.dumps(recorded, sort_keys=True, separators=(",", ":")).encode()))


if __name__ == "__main__":
    main()
