"""What the lines of a training's log report."""

from __future__ import annotations

import pytest

from torchyard.core.progress import lines
from torchyard.core.progress.lines import MAX_REMAINING, LineParser, LineReport, epochs_of


def parsed(*lines: str, epochs: int | None = None) -> LineReport | None:
    """The report of the last line; the lines are a second apart."""
    parser = LineParser(epochs)
    report = None
    for at, line in enumerate(lines):
        report = parser.parse(line, float(at))
    return report


@pytest.mark.parametrize(
    ("line", "percent", "metrics"),
    [
        (
            "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.30",
            1,
            {"Epoch": "1", "Loss": "2.3"},
        ),
        ("Train Epoch: 2 [30000/60000 (50%)] loss=0.3", 50, {"Epoch": "2", "loss": "0.3"}),
        (" 45%|####      | 9/20 [00:03<00:04,  2.90it/s]", 45, {}),
        (
            "Epoch 0:  50%|█████     | 5/10 [00:00<00:00, 45.1it/s, v_num=0, train_loss=0.700]",
            50,
            {"train_loss": "0.7"},
        ),
        ("{'loss': 1.234, 'grad_norm': 2.5, 'learning_rate': 5e-05, 'epoch': 0.33}", None, {"loss": "1.234"}),
        ("{'loss': '1.234', 'epoch': '0.33'}", None, {"loss": "1.234", "epoch": "0.33"}),
        ("epoch=3 loss=0.25", None, {"epoch": "3", "loss": "0.25"}),
        ("step 90/200 loss=0.25", 45, {"loss": "0.25"}),
        ("epoch 3/10 loss: 0.5", 30, {"loss": "0.5"}),
        ("progress: 45%", 45, {}),
    ],
)
def test_programs_report_percent_and_metrics(line: str, percent: int | None, metrics: dict[str, str]) -> None:
    report = parsed(line)
    assert report is not None
    assert (None if report.percent is None else int(report.percent)) == percent
    assert metrics.items() <= report.metrics.items()


@pytest.mark.parametrize(
    "line",
    [
        "val accuracy: 12.5%",
        "Test set: Average loss: 0.0491, Accuracy: 9834/10000 (98%)",
        "validation step 5/10",
        "Validation DataLoader 0:  45%|####    | 9/20 [00:03<00:04]",
        "Sanity Checking DataLoader 0: 100%|####| 2/2 [00:00<00:00]",
        "Loading checkpoint shards: 100%|####| 2/2 [00:00<00:00]",
        "Map:  12%|#   | 120/1000 [00:00<00:04, 200 examples/s]",
        "the disk is 45% full",
    ],
)
def test_what_is_not_the_progress_of_the_training_is_no_percentage(line: str) -> None:
    report = parsed(line)
    assert report is None or report.percent is None


@pytest.mark.parametrize("line", ["listening on port: 29500", "rank=0 world_size=4", "12:30:00 started", "pid: 12"])
def test_numbers_that_measure_no_training_are_no_metrics(line: str) -> None:
    assert parsed(line) is None


def test_the_last_drawing_of_a_bar_counts_and_tells_the_time_that_is_left() -> None:
    line = "\r 10%|#   | 2/20 [00:01<00:09]\r 45%|####   | 9/20 [00:03<01:04]\r       \r{'loss': 0.5, 'epoch': 0.4}"
    assert parsed(line) == LineReport(45.0, 64, {"loss": "0.5", "epoch": "0.4"})


def test_the_bar_of_an_evaluation_between_the_steps_is_ignored() -> None:
    report = parsed(" 50%|##  | 10/20 [00:03<00:03]", "100%|####| 2/2 [00:00<00:00]", "{'eval_loss': 0.5}")
    assert report is not None
    assert report.percent is None


def test_the_share_of_an_epoch_becomes_the_share_of_the_training_where_the_epochs_are_known() -> None:
    assert parsed("Train Epoch: 2 [30000/60000 (50%)]", epochs=4) == LineReport(37.5, None, {"Epoch": "2"})
    lightning = "Epoch 0: 100%|##| 10/10", "Epoch 1:  50%|#  | 5/10"
    assert (parsed(*lightning, epochs=2) or LineReport()).percent == 75
    assert (parsed("epoch=0 loss=1.0", "epoch=1 loss=0.5", epochs=4) or LineReport()).percent == 50
    assert (parsed("{'loss': 1.0, 'epoch': 0.5}", epochs=2) or LineReport()).percent == 25


def test_the_time_that_is_left_follows_the_speed_so_far() -> None:
    assert (parsed("step 10/100", "step 20/100") or LineReport()).remaining == 8
    assert (parsed("step 10/100") or LineReport()).remaining is None
    assert (parsed("step 10/100", "step 100/100") or LineReport()).remaining == 0


@pytest.mark.parametrize(
    ("words", "epochs"),
    [
        (["python", "train.py", "--epochs", "10"], 10),
        (["python", "train.py", "--num_train_epochs=3"], 3),
        (["bash", "-c", "torchrun train.py --max-epochs 7 --lr 1"], 7),
        (["python", "train.py", "--epochs", "many"], None),
        (["python", "train.py"], None),
    ],
)
def test_the_command_may_name_the_number_of_epochs(words: list[str], epochs: int | None) -> None:
    assert epochs_of({"command": words[:1], "args": words[1:]}) == epochs
    assert epochs_of({}) is None


def test_lines_of_any_kind_and_length_are_parsed_in_bounded_time() -> None:
    parser = LineParser()
    for line in (
        "\r" * 10000,
        "9" * 20000,
        "epoch " * 5000,
        "loss=" * 5000,
        "|" * 20000,
        "50%|" + "#" * 20000,
        "epoch 1/9" + "=" * 9000 + "x",
    ):
        parser.parse(line, 0.0)


DIGITS = "9" * 400


@pytest.mark.parametrize(
    "line",
    [
        f"1%|#| {DIGITS}/20",
        f"1%|#| 1/{DIGITS}",
        f"Epoch {DIGITS}: 50%|#| 1/2",
        f"epoch {DIGITS} loss=0.5",
        f"epoch 1/{DIGITS} loss=0.5",
        f"step {DIGITS}/{DIGITS}",
        f"Train Epoch: {DIGITS} [640/60000 (1%)]",
        f"epoch={DIGITS}.5",
    ],
)
def test_numbers_that_are_too_large_are_no_counts(line: str) -> None:
    report = parsed(line, epochs=3) or LineReport()
    assert report.percent is None or 0 <= report.percent <= 100
    assert epochs_of({"command": ["train", f"--epochs={DIGITS}"]}) is None


def test_the_time_that_is_left_fits_its_field() -> None:
    assert (parsed("1%|#| 1/20 [00:03<99999999999:00:00]") or LineReport()).remaining == MAX_REMAINING
    assert (parsed(f"1%|#| 1/20 [00:03<{DIGITS}") or LineReport()).remaining is None
    parser = LineParser()
    parser.parse("step 1/999999999999", 0.0)
    report = parser.parse("step 2/999999999999", 1e6)
    assert report is not None and report.remaining == MAX_REMAINING


def test_only_the_beginning_of_a_long_line_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def search(text: str) -> dict[str, float]:
        searched.append(len(text))
        return {}

    monkeypatch.setattr(lines, "parse_training_metrics", search)
    parsed("#" * 1_000_000)
    assert searched == [1024]


def test_a_long_command_is_searched_in_linear_time() -> None:
    assert epochs_of({"command": ["-" * 200_000, "--" + "x-" * 100_000, "--epochs", "4"]}) == 4


def percents(*printed: str, epochs: int | None = None) -> list[int | None]:
    parser = LineParser(epochs)
    reports = [parser.parse(line, float(at)) or LineReport() for at, line in enumerate(printed)]
    return [None if report.percent is None else int(report.percent) for report in reports]


@pytest.mark.parametrize(
    ("line", "percent", "metrics"),
    [
        ("\x1b[32mstep 10/100\x1b[0m \x1b[31mloss=0.5\x1b[0m", 10, {"loss": "0.5"}),
        ("\x1b[1mEpoch 3:\x1b[0m  45%|\x1b[32m####\x1b[0m  | 9/20 [00:03<00:04, loss=0.3]", 45, {"loss": "0.3"}),
        ("\x1b[A\x1b[2K 50%|##| 10/20 [00:03<00:03]", 50, {}),
        ("[default0]: 45%|##  | 9/20 [00:03<00:04, loss=0.3]", 45, {"loss": "0.3"}),
        ("loss: 0.31:  45%|##  | 9/20 [00:03<00:04]", 45, {"loss": "0.31"}),
        ("Epochs:  30%|###  | 3/10 [00:03<00:07, loss=0.3]", 30, {"loss": "0.3"}),
        ("Epoch: [3][ 10/500]\tTime 0.1 (0.2)\tLoss 2.345e+00 (3.0)\tAcc@1 12.5 (10.0)", 2, {"Loss": "2.345"}),
        ("| epoch   1 |   200/ 2000 batches | lr 5.00 | loss 7.50 | ppl 1800.1", 10, {"loss": "7.5", "lr": "5"}),
        (" 45/100 [====>.....] - ETA: 3s - loss: 0.5", 45, {"loss": "0.5"}),
        ("45/100 \u2501\u2501\u2501\u2501 3s 50ms/step - loss: 0.5", 45, {"loss": "0.5"}),
        ("Iter(train) [ 50/100]  lr: 1e-3  loss: 0.5", 50, {"loss": "0.5"}),
        ("step 1,000/10,000 loss=0.5", 10, {"loss": "0.5"}),
        ("step=1,000/10,000", 10, {}),
        ("step 3: train loss 0.5, val loss 0.6", None, {"loss": "0.5", "val_loss": "0.6"}),
        ("Test set: Average loss: 0.0491, Accuracy: 98.1%", None, {"test_loss": "0.0491", "test_Accuracy": "98.1"}),
    ],
)
def test_other_programs_report_percent_and_metrics(line: str, percent: int | None, metrics: dict[str, str]) -> None:
    report = parsed(line)
    assert report is not None
    assert (None if report.percent is None else int(report.percent)) == percent
    assert metrics.items() <= report.metrics.items()
    assert {"Epochs", "step", "Accuracy"}.isdisjoint(report.metrics)


def test_an_epoch_that_only_begins_does_not_count() -> None:
    keras = "Epoch 1/2", "50/100 [==>..] - loss: 0.5", "100/100 [====] - loss: 0.4", "Epoch 2/2"
    assert percents(*keras) == [0, 25, 50, 50]
    assert percents("Epoch 0/4", "train Loss: 0.5", "Epoch 1/4") == [0, None, 25]
    assert percents("Starting epoch 1", "Finished epoch 1", "epoch 2 done", epochs=4) == [0, 25, 50]
    assert percents("epoch 1/4 loss=0.5", "Epoch 2/4 loss 0.4") == [25, 50]


def test_a_bar_of_each_epoch_counts_for_its_epoch() -> None:
    assert percents("Epoch 1/2", " 50%|#| 5/10", "100%|#| 10/10", "Epoch 2/2", " 50%|#| 5/10") == [0, 25, 50, 50, 75]
    assert percents("Epochs: 0%|| 0/2", "train: 50%|#| 5/10", "Epochs: 50%|| 1/2", "train: 50%|#| 5/10") == [
        0,
        25,
        50,
        75,
    ]


def test_a_bar_inside_another_one_counts_for_one_step_of_it() -> None:
    bars = "0%|| 0/2", "50%|#| 50/100", "100%|#| 100/100", "50%|#| 1/2", "50%|#| 50/100", "100%|#| 2/2"
    assert percents(*bars) == [0, 25, 50, 50, 75, 100]
    labelled = "loss: 0.5: 0%|| 0/2", "train: 50%|#| 50/100", "loss: 0.4: 50%|#| 1/2", "train: 50%|#| 50/100"
    assert percents(*labelled) == [0, 25, 50, 75]
    # An evaluation that is longer than the training, as Transformers draws it.
    assert percents("50%|#| 10/20", "50%|#| 250/500", "55%|#| 11/20") == [50, 52, 55]


@pytest.mark.parametrize(
    "line",
    [
        "model.safetensors:  45%|####5     | 450M/1.00G [00:03<00:04, 150MB/s]",
        "100%|██████████| 170M/170M [00:10<00:00, 16.2MB/s]",
        "  0%|          | 32768/170498071 [00:00<10:00, 283000.0B/s]",
        "Tokenizing train dataset:  45%|####| 9/20 [00:01<00:01, 2000.0 examples/s]",
        "Running tokenizer on train dataset (num_proc=4):  45%|####| 9/20 [00:00<00:01]",
        "Generating train split:  45%|####| 9/20 [00:01<00:01]",
        "Saving step checkpoint: 50%|##| 1/2 [00:00<00:01]",
        "Downloading: 45% done",
        "Loading batch 3 of 10",
    ],
)
def test_downloads_and_the_preparation_of_data_are_no_progress_of_the_training(line: str) -> None:
    assert parsed(line) is None


def test_a_bar_of_rich_counts_epochs_from_zero_to_the_last_one() -> None:
    report = parsed("Epoch 3/9  ━━━━━━━━━━━━━━━╸━━━━━━ 30/60 0:00:01 • 0:00:02 45it/s train_loss: 0.412")
    assert report == LineReport(35.0, None, {"train_loss": "0.412"})
    ended = parsed("Epoch 9/9  ━━━━━━━━━━━━━━━━━━━━━━ 60/60 0:00:01 • 0:00:00 45.11it/s")
    assert ended is not None
    assert ended.percent == 100
    unlimited = parsed("Epoch 3/-2 ━━━━━━━━━━━━━━━━━━━━━━ 30/60 0:00:01 • 0:00:02 45.11it/s")
    assert unlimited is None or unlimited.percent is None


def test_the_lines_of_timm_and_fairseq_name_their_epoch() -> None:
    timm = "Train: 2 [ 600/1200 ( 50%)]  Loss: 6.95 (6.95)  Time: 1.2s  LR: 1.000e-06"
    assert parsed("Train: 0 [   0/1200 (  0%)]  Loss: 6.95", timm, epochs=10) == LineReport(
        25.0, 3, {"Train": "2", "Loss": "6.95", "LR": "1e-06"}
    )
    fairseq = parsed("2026-11-19 | INFO | train_inner | epoch 002:    500 / 1000 loss=13.5, ppl=95.1", epochs=4)
    assert fairseq is not None
    assert fairseq.percent == 37.5


def test_a_long_line_of_redrawn_bars_is_read_at_its_end() -> None:
    line = "\r".join(f"{step // 1000:3d}%|##| {step}/100000 [00:03<00:04]" for step in range(0, 100_000, 4))
    report = parsed(line)
    assert report is not None
    assert (report.percent, report.remaining) == (99.996, 4)
    assert parsed("\r" * 1_000_000) is None
