"""`RecordIndexService` and `DataShardService`: record numbers for a program, in the order the runtime decides."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchyard.elastic.elasticai.leases import BatchLeases, LeaseClient, LeaseServer
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import StepSampler

TRAINING = "training"


@dataclass(frozen=True, slots=True)
class Shard:
    """A batch as a range, and as record numbers where it was shuffled."""

    name: str
    start: int
    end: int
    record_indices: list[int]


def micro_batches() -> int:
    """ElasticDL's fixed global batch: as many mini-batches per step as the job was asked to have workers."""
    return int(os.environ.get("TORCHYARD_ELASTIC_MICRO_BATCHES") or os.environ.get("WORKER_NUM") or 1)


class DataShardService:
    """Hands out the batches of this worker. Done is what the runtime has applied, so reports are only advice."""

    def __init__(  # noqa: PLR0913, PLR0917  # the signature of elasticai_api
        self,
        batch_size: int,
        num_epochs: int | None = None,
        dataset_size: int | None = None,
        shuffle: bool = False,
        shuffle_shards: bool = False,
        task_type: str = TRAINING,
        num_minibatches_per_shard: int = 0,
        dataset_name: str | None = None,
        *,
        master_client: Any = None,
    ) -> None:
        if not dataset_size:
            raise ElasticError("NoDatasetSize", "dataset_size is not given", hint="pass the number of records")
        seed = int(os.environ.get("TORCHYARD_ELASTIC_SEED", "0"))
        # Programs of this kind do not seed: without this, every run would begin with another model.
        torch.manual_seed(seed)
        self.batch_size = batch_size
        self.dataset_name = dataset_name or "_EDL_DEFAULT_TRAINING_DATA"
        self.order = StepSampler(
            dataset_size, batch_size, micro_batches(), num_epochs or 1, seed, bool(shuffle or shuffle_shards)
        )
        self._applied = 0
        self._block = range(self.order.micro_batches)
        self._begin: Any = None
        self.leases = BatchLeases(self.order, lambda: (self._applied, self._block))
        self._server: LeaseServer | None = LeaseServer(self.records_of)
        self._client = LeaseClient(self._server.path)
        self._home = os.getpid()
        self._fetched = 0
        self._current: list[int] = []
        self._shards = 0

    def __getstate__(self) -> dict[str, Any]:
        """A loader that starts fresh interpreters takes only what it needs to ask."""
        return self.__dict__ | {"_server": None, "leases": None, "_begin": None, "_home": -1}

    def started_by(self, begin: Any) -> None:
        """The controller joins the job when the first record is asked for, if it has not before."""
        self._begin = begin

    def moved(self, applied: int, block: range) -> None:
        self._applied, self._block = applied, block
        self.leases.settle(applied, block)

    def records_of(self, number: int) -> list[int] | None:
        lease = self.leases.take(number)
        return None if lease is None else self.order.record_ids(lease.step, lease.micro)

    def _records(self, number: int) -> list[int] | None:
        if os.getpid() != self._home:
            return self._client.records(number)
        if self._begin is not None:
            self._begin()
        return self.records_of(number)

    def fetch_record_index(self) -> int:
        """The next record of this worker. Batches of a loader's processes are told apart by their turn.

        A short batch is filled up with its last record, because a loader insists on full ones; the controller cuts the
        filling off again before anything is computed.
        """
        place = self._fetched % self.batch_size
        if place == 0:
            info = torch.utils.data.get_worker_info()
            turn, turns = (info.id, info.num_workers) if info is not None else (0, 1)
            records = self._records(self._fetched // self.batch_size * turns + turn)
            if records is None:
                raise StopIteration
            self._current = records
        self._fetched += 1
        return self._current[min(place, len(self._current) - 1)]

    def record_index_gen(self) -> Iterator[int]:
        while True:
            try:
                yield self.fetch_record_index()
            except StopIteration:
                return

    def fetch_shard(self) -> Shard | None:
        records = self._records(self._shards)
        self._shards += 1
        if records is None:
            return None
        return Shard(self.dataset_name, min(records), max(records) + 1, records)

    get_task = fetch_shard

    def report_batch_done(self, batch_size: int | None = None, err_msg: str = "", task_ids: Any = ()) -> bool:
        return True

    def get_minibatch_count_per_epoch(self) -> int:
        return self.order.records // self.batch_size

    def get_current_epoch(self) -> int:
        if self._applied >= self.order.steps:
            return self.order.epochs
        return self.order.span(self._applied + 1).epoch

    def get_shard_checkpoint(self) -> str:
        """For programs that keep it: the ledger itself is what a job resumes from."""
        return json.dumps({"dataset_name": self.dataset_name, "step": self._applied, "epoch": self.get_current_epoch()})

    def restore_shard_from_checkpoint(self, checkpoint: str) -> bool:
        return bool(json.loads(checkpoint).get("dataset_name") == self.dataset_name)

    def reset_dataset(self) -> None:
        raise ElasticError("NotSupported", "reset_dataset is not supported", hint="give the number of epochs instead")


class RecordIndexService(DataShardService):
    def __init__(  # noqa: PLR0913, PLR0917  # the signature of elasticai_api
        self,
        batch_size: int,
        num_epochs: int | None = None,
        dataset_size: int | None = None,
        task_type: str = TRAINING,
        shuffle: bool = False,
        num_minibatches_per_shard: int = 0,
        dataset_name: str | None = None,
        *,
        master_client: Any = None,
        num_workers: int = 1,
    ) -> None:
        super().__init__(batch_size, num_epochs, dataset_size, shuffle, task_type=task_type, dataset_name=dataset_name)
