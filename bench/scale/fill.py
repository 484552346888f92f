"""Objects written straight into the store of a stopped plane.

Objects that the server has accepted and the controllers have settled are copied under other names: the objects
themselves and whatever the controllers made for them. So fifty thousand of them take seconds.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import orjson

from bench.scale.kinds import number_text
from torchyard.apiserver.store.log import Log, Row
from torchyard.core.service.slices import desired_slices

_ROWS_PER_TRANSACTION = 1000
_NUMBER_TEXT = re.compile("n[0-9]{6}z")


def fill(database: Path, templates: range, numbers: range) -> int:
    """Copy the objects of `templates`, in turn, as those of `numbers`; returns how many rows were written."""
    log = Log(database)
    try:
        groups = _groups(log, templates)
        revision = log.last_revision()
        rows: list[Row] = []
        written = 0
        for number in numbers:
            template = templates[number % len(templates)]
            for row in _copies(groups[template], number_text(template), number_text(number)):
                revision += 1
                rows.append(_at(row, revision))
            if len(rows) >= _ROWS_PER_TRANSACTION:
                log.append(rows)
                written, rows = written + len(rows), []
        log.append(rows)
        return written + len(rows)
    finally:
        log.close()


def _groups(log: Log, templates: range) -> dict[int, list[Row]]:
    """The rows that name a template, by its number."""
    groups: dict[int, list[Row]] = {number: [] for number in templates}
    tokens = {number_text(number): number for number in templates}
    for revision, key, value in log.current():
        match = _NUMBER_TEXT.search(key)
        if match is not None and match[0] in tokens:
            groups[tokens[match[0]]].append(Row(revision, key, 0, False, value))
    return groups


def _copies(group: list[Row], old: str, new: str) -> Iterator[Row]:
    uids = {orjson.loads(row.value)["metadata"]["uid"].encode(): str(uuid.uuid4()).encode() for row in group}
    for row in group:
        value = row.value.replace(old.encode(), new.encode())
        for before, after in uids.items():
            value = value.replace(before, after)
        key = row.key.replace(old, new)
        if key.startswith("/endpointslices."):
            key, value = _renamed_slice(key, value)
        yield Row(0, key, 0, False, value)


def _renamed_slice(key: str, value: bytes) -> tuple[str, bytes]:
    """The name of an EndpointSlice depends on the uid of its service; one of another name would be replaced."""
    endpoint_slice = orjson.loads(value)
    metadata = endpoint_slice["metadata"]
    (owner,) = metadata["ownerReferences"]
    service = {"metadata": {"name": owner["name"], "namespace": metadata["namespace"], "uid": owner["uid"]}, "spec": {}}
    (desired,) = desired_slices(service, [])
    metadata["name"] = desired["metadata"]["name"]
    return f"{key.rpartition('/')[0]}/{metadata['name']}", orjson.dumps(endpoint_slice)


def _at(row: Row, revision: int) -> Row:
    obj = orjson.loads(row.value)
    obj["metadata"]["resourceVersion"] = str(revision)
    return Row(revision, row.key, 0, False, orjson.dumps(obj))
