"""Checks what a connection claims before it takes part in a job. Pure: it opens no sockets and changes nothing."""

from __future__ import annotations

import hmac
from dataclasses import asdict
from typing import Any

from torchyard.elastic import wire
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.identity import HINT, describe
from torchyard.elastic.ledger import FinishedTraining
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire_fields import MAX_INT

LONGEST_NAME = 253
MOST_TRAININGS = 1000
WRONG_SETTINGS = frozenset({"ConfigChanged", "OrderChanged", "TooManyWorkers"})
"""The codes of settings that a worker may not have; any other refusal says nothing about the job."""


def is_token(text: str, token: str) -> bool:
    """Return whether a text is the token, in a time that does not depend on the text."""
    return bool(token) and hmac.compare_digest(text.encode(errors="replace"), token.encode())


def admit(first: wire.Message, *, job: str, token: str) -> None:
    """Raise unless a connection belongs to the job and speaks the same version of the protocol."""
    if not isinstance(first, wire.Authentication):
        raise ElasticError(
            "BadMessage",
            "the first message of a connection must be Authentication",
            hint="use the same torchyard version everywhere in a job",
        )
    if not is_token(first.token, token):
        raise ElasticError(
            "BadToken",
            f"the token of {first.name[:100]!r} is missing or wrong",
            hint="start the worker with the job's runner",
        )
    if first.job != job:
        raise ElasticError(
            "OtherJob",
            f"{first.name} belongs to job {first.job!r}, but this coordinator serves job {job!r}",
            hint="check the worker's coordinator address",
        )
    if first.version != wire.VERSION:
        raise ElasticError(
            "OtherVersion",
            f"{first.name} uses protocol version {first.version}, this coordinator uses {wire.VERSION}",
            hint="use the same torchyard version everywhere in a job",
        )


def check_names(hello: wire.Hello) -> None:
    """Raise if a name is longer than Kubernetes allows: names are part of messages to all workers."""
    for name in (hello.name, hello.node, *hello.members):
        if len(name) > LONGEST_NAME:
            raise ElasticError("BadMessage", f"the name {name[:40]!r}… has {len(name)} characters, not {LONGEST_NAME}")


def read_sampler(hello: wire.Hello) -> tuple[StepSampler, dict[str, Any]]:
    """Return the data order and the rest of a worker's configuration."""
    config = dict(hello.config)
    try:
        sampler = StepSampler(**config.pop("sampler"))
        numbers = [getattr(sampler, name) for name in StepSampler.__slots__ if name != "shuffle"]
        if any(type(number) is not int or number.bit_length() > 64 for number in numbers):
            raise TypeError("a field of the sampler is not an integer of 64 bits")
        if sampler.steps > MAX_INT or type(sampler.shuffle) is not bool:
            raise TypeError("a field of the sampler is out of range")
    except (KeyError, TypeError) as error:
        raise ElasticError("BadMessage", f"the configuration of {hello.name} has no valid sampler: {error}") from error
    return sampler, config


def read_training(name: str, config: dict[str, Any]) -> tuple[int, int]:
    """Return which training of its program a worker has begun, and how many there are."""
    number, count = config.get("training", 1), config.get("trainings", 1)
    if type(number) is not int or type(count) is not int or not 1 <= number <= count <= MOST_TRAININGS:
        raise ElasticError("BadMessage", f"{name} has begun training {number!r} of {count!r}")
    return number, count


def check_training(name: str, number: int, current: int) -> None:
    """Raise if a worker is in a training that the job has not reached."""
    if number > current:
        raise ElasticError(
            "TrainingAhead",
            f"{name} has begun training {number}, but the job is in training {current}: the state with which an "
            "earlier training ended was lost",
            hint="restart the worker; pass checkpoints= to every training but the last, so that nothing is lost",
        )


def check_finished(name: str, sampler: StepSampler, config: dict[str, Any], ended: FinishedTraining) -> None:
    """Raise if a worker would have computed another training than the one that is finished."""
    known = StepSampler(**ended["sampler"])
    if sampler != known:
        changes = describe(ended["sampler"], asdict(sampler))
        raise ElasticError(
            "OrderChanged",
            f"{name} describes a finished training with another data order: {changes}",
            hint="restore the settings of that training, or start again with --fresh or in a new job directory",
        )
    compare_config(name, config, ended["config"], first=True)


def check_workers(limits: WorldLimits, micro_batches: int) -> None:
    """Raise if no world of the job can have the workers that it needs."""
    if limits.min_workers > micro_batches or (micro_batches == 1 and limits.first_workers > 1):
        raise ElasticError(
            "TooManyWorkers",
            f"the job has {max(limits.min_workers, limits.first_workers)} workers, but micro_batches is "
            f"{micro_batches}: a step can be divided among at most {micro_batches} workers",
            hint=f"pass micro_batches={limits.first_workers} to train (this changes the training), or start "
            f"{micro_batches} workers",
        )


def check_step(step: int, sampler: StepSampler | None, *, name: str) -> None:
    """Raise if a worker reports a step that its job does not have: the ledger would count up to it."""
    if sampler is not None and step > sampler.steps:
        raise ElasticError("BadMessage", f"{name} reports step {step}, but the job has {sampler.steps} steps")


def compare_config(name: str, worker: dict[str, Any], job: dict[str, Any], *, first: bool = False) -> None:
    """Raise if a worker would not compute what its job computes.

    Args:
        name: the worker.
        worker: its settings.
        job: the settings of the job.
        first: whether the settings of the job are those of an earlier run.
    """
    differing = [key for key in sorted(set(worker) | set(job)) if worker.get(key) != job.get(key)]
    if not differing:
        return
    if first:
        raise ElasticError("ConfigChanged", f"the job has other settings: {describe(job, worker)}", hint=HINT)
    facts = "; ".join(f"{key} is {worker.get(key)!r}, the job has {job.get(key)!r}" for key in differing)
    hint = "use the same settings on every worker"
    if differing == ["initial parameters"]:
        hint = "create the model after elastic.join, which seeds torch, so that all workers begin with the same model"
    elif differing == ["first records"]:
        hint = (
            "create the dataset in the same way on every worker: shuffle or split it after elastic.join, which seeds "
            "torch, or with a seed of its own; sort what comes from a set or a directory"
        )
    raise ElasticError("ConfigChanged", f"the configuration of {name} differs from its job: {facts}", hint=hint)
