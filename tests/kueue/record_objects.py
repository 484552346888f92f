"""Sends the requests of `object_cases` to the real Kueue and writes its answers into `recorded_objects.json.xz`.

python -m tests.kueue.record_objects
"""

from __future__ import annotations

import json
import lzma
import tempfile
from pathlib import Path

from tests.kueue.object_cases import Object, ObjectCase, all_cases
from tests.kueue.object_requests import run_object_cases, set_up
from tests.kueue.peers import kueue

RECORDED_OBJECTS = Path(__file__).parent / "recorded_objects.json.xz"


def load_recorded_objects() -> list[tuple[ObjectCase, Object]]:
    entries = json.loads(lzma.decompress(RECORDED_OBJECTS.read_bytes()))
    return [(ObjectCase(*case), answer) for *case, answer in entries]


def store_recorded_objects(answers: list[tuple[ObjectCase, Object]]) -> None:
    lines = ",\n".join(json.dumps([*case, answer], sort_keys=True) for case, answer in answers)
    RECORDED_OBJECTS.write_bytes(lzma.compress(f"[\n{lines}\n]\n".encode(), preset=9))


def main() -> None:
    cases = list(all_cases())
    with tempfile.TemporaryDirectory() as directory, kueue(Path(directory)) as server:
        set_up(server.admin)
        answers = run_object_cases(server.admin, cases)
    store_recorded_objects([(case, answers[case.key]) for case in cases])
    refused = sum("status" in answer for answer in answers.values())
    print(f"{len(cases)} requests, of which Kueue refused {refused}")


if __name__ == "__main__":
    main()
