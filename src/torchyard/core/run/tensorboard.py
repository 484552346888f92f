"""The metrics of a job as a file that TensorBoard reads: TFRecords of TensorFlow's `Event` messages.

The format is written here because neither torch nor this package needs TensorBoard otherwise.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchyard.api.times import parse_rfc3339
from torchyard.core.run.metrics import parse_training_metrics

_STEP = re.compile(r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?)s?[\"']?\s*[:=\[]?\s*(\d{1,15})\b", re.IGNORECASE)
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\S+Z) ")
_NOT_METRICS = ("step", "global_step", "iter", "iteration")
_VERSION = b"brain.Event:2"
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected
_MASK_DELTA = 0xA282EAD8


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """The metrics of a line. `time` is in seconds since 1970."""

    time: float
    step: int
    metrics: dict[str, float]


def metric_points(lines: Iterable[str]) -> list[MetricPoint]:
    """The metrics of lines that have their time in front.

    The steps are those that the lines name. If they do not grow, as batches of epochs, the points are numbered instead:
    TensorBoard takes a smaller step for a restart and drops what was before.
    """
    points: list[MetricPoint] = []
    named: list[int] = []
    time = 0.0
    for line in lines:
        stamped = _TIME.match(line)  # a bar that is drawn again has its time in front of its first state only
        time = parse_rfc3339(stamped[1]).timestamp() if stamped else time
        text = line[stamped.end() :] if stamped else line
        metrics = {name: value for name, value in parse_training_metrics(text).items() if name not in _NOT_METRICS}
        if not metrics:
            continue
        step = _STEP.search(text)
        named += [int(step[1])] if step else []
        points.append(MetricPoint(time, len(points) + 1, metrics))
    if len(named) == len(points) and named == sorted(named):
        return [MetricPoint(point.time, step, point.metrics) for point, step in zip(points, named, strict=True)]
    return points


def event_file(points: list[MetricPoint]) -> bytes:
    """The content of an `events.out.tfevents` file."""
    start = points[0].time if points else 0.0
    events = [_double(1, start) + _bytes(3, _VERSION)]
    for point in points:
        values = b"".join(
            _bytes(1, _bytes(1, name.encode()) + _float(2, value)) for name, value in point.metrics.items()
        )
        events.append(_double(1, point.time) + _varint(2 << 3) + _varint(point.step) + _bytes(5, values))
    return b"".join(_record(event) for event in events)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF)


def _table() -> Iterator[int]:
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        yield value


_TABLE = tuple(_table())


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    """A number that is too large for 32 bits is infinite."""
    try:
        return _varint(field << 3 | 5) + struct.pack("<f", value)
    except OverflowError:
        return _varint(field << 3 | 5) + struct.pack("<f", float("inf") if value > 0 else float("-inf"))
