"""What a loop carries from step to step, and what decides when it ends, how it trains or which model it saves."""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch
from torch import nn
from torch.utils.data import TensorDataset

from torchyard import elastic
from torchyard.elastic.errors import ElasticError

pytestmark = pytest.mark.train
INPUTS, LABELS = torch.randn(48, 6), torch.randint(0, 3, (48,))
DATA = TensorDataset(INPUTS, LABELS)
Program = Callable[..., object]
calls = 0


@pytest.fixture(autouse=True)
def ordinary_kernels() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


class Run:
    """A model, its optimizer, and the loops of a job."""

    def __init__(self, **changes: Any) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(6, 3)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.job = elastic.join(seed=1)
        self.changes: dict[str, Any] = {"data": DATA, "batch": 8, "epochs": 2} | changes

    def steps(self, **changes: Any) -> Iterator[elastic.Step]:
        def loss_of(batch: Any) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        applied: Iterator[elastic.Step] = self.job.train(
            self.net, self.optimizer, loss=loss_of, **(self.changes | changes)
        )
        return applied

    def epochs(self, **changes: Any) -> Any:
        return self.job.epochs(self.net, self.optimizer, **(self.changes | changes))


def backward(net: nn.Module, batch: Any) -> torch.Tensor:
    net.zero_grad()
    loss = nn.functional.cross_entropy(net(batch[0]), batch[1])
    torch.autograd.backward(loss)
    return loss


def patience_in_variables(**changes: Any) -> None:
    best, bad = math.inf, 0
    for step in Run(**changes).steps():
        if step.loss < best:
            best, bad = step.loss, 0
        else:
            bad += 1
        if bad > 100:
            break


def patience_through_another_variable(**changes: Any) -> None:
    losses = list[float]()
    for step in Run(**changes).steps():
        losses.append(step.loss)
        mean = sum(losses[-3:]) / 3
        finished = mean < -1
        if finished:
            return


def window_of_losses(**changes: Any) -> None:
    window = deque[float](maxlen=4)
    for step in Run(**changes).steps():
        window.append(step.loss)
        if len(window) == 4 and max(window) < -1:
            break


class Patience:
    """As people write it, or install it."""

    def __init__(self) -> None:
        self.best, self.bad, self.stop = math.inf, 0, False

    def __call__(self, value: float) -> bool:
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        self.stop = self.bad > 100
        return self.stop


def patience_in_an_object(**changes: Any) -> None:
    patience = Patience()
    for step in Run(**changes).steps():
        patience(step.loss)
        if patience.stop:
            break


def patience_in_a_closure(**changes: Any) -> None:
    bad = 0

    def is_enough(loss: float) -> bool:
        nonlocal bad
        bad += loss > 0
        return bad > 100

    for step in Run(**changes).steps():
        if is_enough(step.loss):
            break


def patience_in_a_global(**changes: Any) -> None:
    global calls  # noqa: PLW0603  # as programs have it
    for _ in Run(**changes).steps():
        calls += 1
        if calls > 10**6:
            break


def learning_rate_of_a_counter(**changes: Any) -> None:
    run, scale = Run(**changes), 1.0
    for _ in run.steps():
        scale *= 0.9
        for group in run.optimizer.param_groups:
            group["lr"] = 0.1 * scale


def learning_rate_after_bad_steps(**changes: Any) -> None:
    run, bad = Run(**changes), 0
    optimizer = run.optimizer
    for step in run.steps():
        bad += step.loss > 0
        if bad > 100:
            optimizer.param_groups[0]["lr"] *= 0.5


def rate_of_a_function(**changes: Any) -> None:
    run = Run(**changes)

    def adjust(optimizer: Any, factor: float) -> None:
        optimizer.param_groups[0]["lr"] = factor

    for count, _ in enumerate(run.steps()):
        adjust(run.optimizer, 0.1 / (count + 1))


def best_model_on_disk(**changes: Any) -> None:
    run, best = Run(**changes), math.inf
    for step in run.steps():
        if step.loss < best:
            best = step.loss
            torch.save(run.net.state_dict(), run.changes.get("path", "/dev/null"))


def schedule_after_some_steps(**changes: Any) -> None:
    run = Run()
    schedule = torch.optim.lr_scheduler.ExponentialLR(run.optimizer, gamma=0.9)
    count = 0
    for _ in run.steps(also={"schedule": schedule}, **changes):
        count += 1
        if count % 3:
            continue
        schedule.step()


class Experiment:
    """The loop is a method, and its counters are attributes."""

    def __init__(self, **changes: Any) -> None:
        self.run, self.bad, self.history, self.stop = Run(**changes), 0, list[float](), False

    def update(self, loss: float) -> None:
        self.bad += loss > 0
        self.stop = self.bad > 100

    def train(self) -> None:
        for step in self.run.steps():
            self.history.append(step.loss)
            self.update(step.loss)
            if self.stop:
                break


def patience_in_attributes(**changes: Any) -> None:
    Experiment(**changes).train()


def patience_over_epochs(**changes: Any) -> None:
    run, best, bad = Run(**changes), math.inf, 0
    for _, batches in run.epochs():
        for batch in batches:
            backward(run.net, batch)
            run.optimizer.step()
        value = float(next(run.net.parameters()).detach().norm())
        if value < best:
            best, bad = value, 0
        else:
            bad += 1
        if bad > 100:
            break


def one_epoch(run: Run, batches: Any) -> None:
    for batch in batches:
        backward(run.net, batch)
        run.optimizer.step()


def patience_over_epochs_of_a_function(**changes: Any) -> None:
    run, bad = Run(**changes), 0
    for _, batches in run.epochs():
        one_epoch(run, batches)
        bad += float(next(run.net.parameters()).detach().norm()) > 0
        if bad > 100:
            break


def loss_of_own_batches_decides(**changes: Any) -> None:
    run = Run()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(run.optimizer)
    for _, batches in run.epochs(also={"schedule": schedule}, **changes):
        total = 0.0
        for batch in batches:
            total += float(backward(run.net, batch).detach())
            run.optimizer.step()
        schedule.step(total)


REFUSED: list[tuple[Program, str, str]] = [
    (patience_in_variables, r"carries (best|bad) from one step .* decides when the loop ends", "best bad"),
    (patience_through_another_variable, r"carries len\(losses\) .* decides when the loop ends", "losses"),
    (window_of_losses, r"carries len\(window\) .* decides when the loop ends", "window"),
    (patience_in_an_object, r"carries patience\.best .* decides when the loop ends", "patience"),
    (patience_in_a_closure, r"carries bad .* decides when the loop ends", "is_enough bad"),
    (patience_in_a_global, r"carries calls .* decides when the loop ends", "calls"),
    (learning_rate_of_a_counter, r"carries scale .* decides what changes group\['lr'\]", "scale"),
    (learning_rate_after_bad_steps, r"carries bad .* decides what changes optimizer\.param_groups\[0\]\['lr'\]", "bad"),
    (rate_of_a_function, r"carries count .* decides what adjust does", "count"),
    (best_model_on_disk, r"carries best .* decides which model torch\.save saves", "best"),
    (schedule_after_some_steps, r"carries count .* decides when or how schedule\.step is called", "count"),
    (patience_in_attributes, r"carries self\.bad .* decides when the loop ends", "self.bad self.stop"),
    (patience_over_epochs, r"carries (best|bad) .* decides when the loop ends", "best bad"),
    (patience_over_epochs_of_a_function, r"carries bad .* decides when the loop ends", "bad"),
    (loss_of_own_batches_decides, r"total depends on the batches of this worker, but it decides when or how", "total"),
]


@pytest.mark.parametrize(("program", "text", "names"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_decides_must_be_part_of_the_state_or_unchecked(program: Program, text: str, names: str) -> None:
    with pytest.raises(ElasticError, match=text) as caught:
        program()
    assert caught.value.code == "StateOutside"
    assert "unchecked=[" in caught.value.hint
    program(unchecked=names.split())


PACKAGE = """
class Stopper:
    def __init__(self): self.bad = 0
    def update(self, loss): self.bad += 1; return self.bad > 100

class Average:
    def __init__(self, net): self.shadow = [p.detach().clone() for p in net.parameters()]
    def update(self, net): self.shadow = [p.detach().clone() for p in net.parameters()]
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package as pip installs it."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_stopper.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("installed_stopper")


def test_an_early_stop_of_an_installed_package_is_refused(package: Any) -> None:
    run, stopper = Run(), package.Stopper()
    with pytest.raises(ElasticError, match=r"carries stopper\.bad .* decides when the loop ends"):
        for step in run.steps():
            if stopper.update(step.loss):
                break


def test_a_moving_average_of_an_installed_package_is_refused(package: Any) -> None:
    run = Run()
    average = package.Average(run.net)
    with pytest.raises(ElasticError, match=r"average\.shadow\[0\], which has the shape of a parameter"):
        for _ in run.steps():
            average.update(run.net)


def logs() -> None:
    run, count, total, losses, started = Run(), 0, 0.0, list[float](), time.monotonic()
    for step in run.steps():
        count += 1
        total += step.loss
        losses.append(step.loss)
        if count % 2 == 0:
            print(f"{total / count} {max(losses)} {time.monotonic() - started}")
            evaluate(run.net)
        if step.loss < -1:
            break
    assert count == 12


def evaluate(net: nn.Module) -> float:
    net.eval()
    with torch.no_grad():
        correct = (net(INPUTS).argmax(1) == LABELS).float().mean()
    net.train()
    return float(correct)


def logs_of_a_callback() -> None:
    run, best = Run(), {"loss": math.inf}

    def after(step: elastic.Step) -> bool:
        if step.loss < best["loss"]:
            best["loss"] = step.loss
            print(f"best {step.loss}")
        return bool(step.loss < -1)

    for step in run.steps():
        if after(step):
            break


def values_of_one_step() -> None:
    run = Run()
    for step in run.steps():
        if step.last_of_epoch:
            accuracy = evaluate(run.net)
            better = accuracy > 2
            if better:
                break
    assert run.job.digest


def sums_of_an_evaluation() -> None:
    run = Run()
    for _, batches in run.epochs():
        for batch in batches:
            loss = backward(run.net, batch)
            run.optimizer.step()
            print(float(loss.detach()))
        correct = 0
        for inputs, label in zip(INPUTS, LABELS, strict=True):
            correct += int(run.net(inputs).argmax() == label)
        if correct > 100:
            break


@pytest.mark.parametrize("program", [logs, logs_of_a_callback, values_of_one_step, sums_of_an_evaluation])
def test_logs_and_values_of_one_step_may_be_used(program: Program) -> None:
    program()


def test_values_in_the_state_may_decide() -> None:
    run, kept = Run(), elastic.Values(best=math.inf, bad=0)
    for step in run.steps(also={"kept": kept}):
        kept.bad = 0 if step.loss < kept.best else kept.bad + 1
        kept.best = min(kept.best, step.loss)
        if kept.bad > 100:
            break
    assert kept.best < math.inf


def test_values_that_every_batch_changes_are_refused() -> None:
    run, kept = Run(), elastic.Values(batches=0)
    with pytest.raises(ElasticError, match="kept was changed for micro-batch"):
        for _, batches in run.epochs(also={"kept": kept}):
            for batch in batches:
                backward(run.net, batch)
                run.optimizer.step()
                kept.batches += 1


def test_values_are_plain_and_have_the_names_that_they_began_with() -> None:
    kept = elastic.Values(best=1.5, seen=["a"])
    other = elastic.Values(best=0.0, seen=list[str]())
    other.load_state_dict(kept.state_dict())
    kept.seen.append("b")
    assert (other.best, other.seen) == (1.5, ["a"])
    with pytest.raises(AttributeError, match="Values has no 'wrost'; it has best, seen"):
        _ = kept.wrost
    with pytest.raises(ElasticError, match="model is a Linear"):
        elastic.Values(model=nn.Linear(1, 1))
    with pytest.raises(ElasticError, match="best is a Tensor"):
        kept.best = torch.tensor(1.0)
    with pytest.raises(ElasticError, match="state_dict is a method of Values"):
        elastic.Values(state_dict=1)
    assert kept.best == 1.5


def test_a_program_without_source_is_trained(tmp_path: Path) -> None:
    code = "for step in run.steps():\n    count += 1\n    if count > 100: break\nassert count == 12"
    exec(compile(code, str(tmp_path / "missing.py"), "exec"), {"run": Run(), "count": 0})
