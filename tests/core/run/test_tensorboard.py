"""Metrics as a file that TensorBoard reads."""

from __future__ import annotations

import struct

from torchyard.core.run.tensorboard import MetricPoint, _masked_crc, event_file, metric_points

LINES = [
    "2026-01-01T00:00:01.500000000Z starting",
    "2026-01-01T00:00:02.000000000Z step 10/30 loss=0.5",
    "2026-01-01T00:00:03.000000000Z step 20/30 loss=0.25 lr: 1e-3",
]
START = 1767225600.0


def test_a_point_has_the_time_and_the_step_of_its_line() -> None:
    assert metric_points(LINES) == [
        MetricPoint(START + 2, 10, {"loss": 0.5}),
        MetricPoint(START + 3, 20, {"loss": 0.25, "lr": 0.001}),
    ]


def test_points_are_numbered_if_steps_begin_again_or_are_missing() -> None:
    again = [*LINES, "2026-01-01T00:00:04Z step 10/30 loss=0.1"]
    assert [point.step for point in metric_points(again)] == [1, 2, 3]
    assert [point.step for point in metric_points([*LINES, "2026-01-01T00:00:04Z val loss: 0.3"])] == [1, 2, 3]


def test_the_states_of_a_bar_have_the_time_of_its_line() -> None:
    points = metric_points(["2026-01-01T00:00:02Z  10%|# | 1/10 [00:01, loss=0.5]", " 20%|## | 2/10 [00:02, loss=0.4]"])
    assert [(point.time, point.metrics["loss"]) for point in points] == [(START + 2, 0.5), (START + 2, 0.4)]


def test_the_file_is_that_of_tensorboard() -> None:
    content = event_file([MetricPoint(START, 300, {"loss": 0.5, "big": 1e300})])
    records = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        records.append(content[12 : 12 + length])
        content = content[16 + length :]
    version, event = records
    assert version == struct.pack("<Bd", 9, START) + b"\x1a\x0dbrain.Event:2"
    big = b"\n\x0a\n\x03big\x15\x00\x00\x80\x7f"
    summary = b"\n\x0b\n\x04loss\x15\x00\x00\x00?" + big
    assert event == struct.pack("<Bd", 9, START) + b"\x10\xac\x02*" + bytes([len(summary)]) + summary


def test_records_have_the_checksums_of_tfrecords() -> None:
    crc = 0xE3069283  # of CRC-32C, as RFC 3720 gives it
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert _masked_crc(b"123456789") == struct.pack("<I", masked)
