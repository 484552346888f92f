"""Metrics in log lines."""

from __future__ import annotations

import math

import pytest

from torchyard.core.run.metrics import last_metrics, parse_metrics


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("loss=0.25", {"loss": 0.25}),
        ("Train Epoch: 1 [640/60000 (1%)]\tloss=2.3", {"Epoch": 1.0, "loss": 2.3}),
        ("val/acc: 91.5%, lr = 1e-3", {"val/acc": 91.5, "lr": 1e-3}),
        ('{"step": 3, "val_loss": 2.5e-1}', {"step": 3.0, "val_loss": 0.25}),
        ("accuracy=0.9712", {"accuracy": 0.9712}),
        ("2026-01-01 12:30:00 started", {}),
        ("listening on host:8080/path", {}),
        ("version=1.2.3", {}),
        ("id=0x1f name=abc", {}),
        ("http://example:80", {}),
        ("nothing here", {}),
        ("\x1b[31mloss\x1b[0m: \x1b[1m0.5\x1b[0m", {"loss": 0.5}),
        ("iter 10: loss 4.3, time 12.3ms", {"loss": 4.3}),
        ("the loss 5 times", {}),
        ("step=1,000/10,000 tokens=1,024", {"tokens": 1024.0}),
        ("W1118 03:00:00.123000 7 torch/distributed/run.py:766] Setting OMP_NUM_THREADS", {}),
        ("[rank0]:[W1118 ProcessGroupNCCL.cpp:1250] Warning: destroy_process_group()", {}),
        ("[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1", {}),
    ],
)
def test_named_numbers_are_metrics(line: str, metrics: dict[str, float]) -> None:
    assert parse_metrics(line) == metrics


def test_the_last_value_counts() -> None:
    assert last_metrics(["loss=1", "loss=0.5 acc=1", "end"]) == {"loss": 0.5, "acc": 1.0}
    assert math.isnan(parse_metrics("loss: nan")["loss"])
    assert len(last_metrics(f"m{number}=1" for number in range(1000))) == 100


@pytest.mark.parametrize("text", ["#", "a,", "a", "'", "is ", "a=1 ", ".", "1,000,", "loss ", "\x1b["])
def test_a_very_long_line_takes_linear_time(text: str) -> None:
    """With a pattern that is quadratic, a line of this length takes minutes."""
    parse_metrics(text * (200_000 // len(text)))
