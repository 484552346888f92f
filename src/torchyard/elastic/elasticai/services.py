"""`RecordIndexService` and `DataShardService`: record numbers for a program, in the sampler's order."""

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
    """A batch: the range of its records, and their numbers."""

    name: str
    start: int
    end: int
    record_indices: list[int]


def micro_batches() -> int:
    """Return the number of mini-batches in a step: as in ElasticDL, the number of workers that the job began with."""
    return int(os.environ.get("TORCHYARD_ELASTIC_MICRO_BATCHES") or os.environ.get("WORKER_NUM") or 1)


class DataShardService:
    """Provides the batches of this worker. The runtime knows which batches are complete, so reports have no effect."""

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
            raise ElasticError("NoDatasetSize", "dataset_size is missing", hint="pass the number of records")
        seed = int(os.environ.get("TORCHYARD_ELASTIC_SEED", "0"))
        # These programs set no seed: without this, every run would begin with another model.
        torch.manual_seed(seed)
        self.batch_size = batch_size
        self.dataset_name = dataset_name or "_EDL_DEFAULT_TRAINING_DATA"
        self.sampler = StepSampler(
            dataset_size, batch_size, micro_batches(), num_epochs or 1, seed, bool(shuffle or shuffle_shards)
        )
        self._applied = 0
        self._block = range(self.sampler.micro_batches)
        self._on_first_record: Any = None
        self.leases = BatchLeases(self.sampler, lambda: (self._applied, self._block))
        self._server: LeaseServer | None = LeaseServer(self.records_of)
        self._client = LeaseClient(self._server.path)
        self._training_pid: int | None = os.getpid()
        self._fetched = 0
        self._current: list[int] = []
        self._shards = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return what a DataLoader worker in a new interpreter needs to request leases."""
        return self.__dict__ | {"_server": None, "leases": None, "_on_first_record": None, "_training_pid": None}

    def on_first_record(self, callback: Any) -> None:
        """Call `callback` before the first record: the controller joins the job then, if it has not before."""
        self._on_first_record = callback

    def set_position(self, applied: int, block: range) -> None:
        self._applied, self._block = applied, block
        self.leases.release(applied, block)

    def records_of(self, number: int) -> list[int] | None:
        lease = self.leases.take(number)
        return None if lease is None else self.sampler.record_ids(lease.step, lease.micro)

    def _records(self, number: int) -> list[int] | None:
        if os.getpid() != self._training_pid:
            return self._client.records(number)
        if self._on_first_record is not None:
            self._on_first_record()
        return self.records_of(number)

    def fetch_record_index(self) -> int:
        """Return the next record of this worker. The number of a DataLoader's process determines its batches.

        A short batch is padded with its last record, because a DataLoader expects full batches. The controller removes
        the padding before it computes.
        """
        index = self._fetched % self.batch_size
        if index == 0:
            info = torch.utils.data.get_worker_info()
            worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
            records = self._records(self._fetched // self.batch_size * workers + worker)
            if records is None:
                raise StopIteration
            self._current = records
        self._fetched += 1
        return self._current[min(index, len(self._current) - 1)]

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
        return self.sampler.records // self.batch_size

    def get_current_epoch(self) -> int:
        if self._applied >= self.sampler.steps:
            return self.sampler.epochs
        return self.sampler.span(self._applied + 1).epoch

    def get_shard_checkpoint(self) -> str:
        """Return a position for programs that store it. A job resumes from its ledger, not from this."""
        return json.dumps({"dataset_name": self.dataset_name, "step": self._applied, "epoch": self.get_current_epoch()})

    def restore_shard_from_checkpoint(self, checkpoint: str) -> bool:
        return bool(json.loads(checkpoint).get("dataset_name") == self.dataset_name)

    def reset_dataset(self) -> None:
        raise ElasticError("NotSupported", "reset_dataset is not supported", hint="set num_epochs instead")


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
