"""Trains on a streaming dataset, and counts in a parameter how often it has seen each record.

`python streamed.py own|tar|datasets|datasets_shuffled|litdata|mosaic FOLDER`. With ZOO_HOLD, a step waits for that
file. `prepare` writes the data, and `import` only imports the package.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import tarfile
import time
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

RECORDS, BATCH, EPOCHS = 96, 16, 3
LENGTHS = [20, 7, 0, 33, 36]


def records_of(shard: int) -> range:
    return range(sum(LENGTHS[:shard]), sum(LENGTHS[: shard + 1]))


def prepare(kind: str, folder: Path) -> None:
    """Write the data of a kind into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "tar":
        for shard in range(len(LENGTHS)):
            with tarfile.open(folder / f"{shard}.tar", "w") as archive:
                for record in records_of(shard):
                    for suffix in ("id.txt", "copy.txt"):
                        member = tarfile.TarInfo(f"part/{record:04}.{suffix}")
                        member.size = len(str(record))
                        archive.addfile(member, io.BytesIO(str(record).encode()))
    elif kind.startswith("datasets"):
        for shard in range(len(LENGTHS)):
            if LENGTHS[shard]:
                lines = [json.dumps({"id": record}) for record in records_of(shard)]
                (folder / f"{shard}.jsonl").write_text("\n".join(lines) + "\n")
    elif kind == "litdata":
        import litdata

        litdata.optimize(
            fn=_identity, inputs=list(range(RECORDS)), output_dir=str(folder), chunk_size=10, num_workers=1
        )
    elif kind == "mosaic":
        with mosaic_streaming().MDSWriter(out=str(folder), columns={"id": "int"}, size_limit=200) as writer:
            for record in range(RECORDS):
                writer.write({"id": record})


def mosaic_streaming() -> Any:
    """Import MosaicML Streaming.

    For its datasets of images, which are not used here, it imports names of torchvision, whose wheels fit only some
    builds of torch. Where torchvision cannot be imported, empty modules have these names.
    """
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError, OSError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        names = {"torchvision.datasets": "VisionDataset", "torchvision.transforms.functional": "to_tensor"}
        for name in ("torchvision", "torchvision.transforms", *names):
            module = sys.modules[name] = types.ModuleType(name)
            module.__spec__ = ModuleSpec(name, None)
            if name in names:
                setattr(module, names[name], object)
    return importlib.import_module("streaming")


def _identity(record: int) -> dict[str, int]:
    return {"id": record}


class OwnStream(IterableDataset[int]):
    """A stream with the two methods that make it seekable."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(RECORDS))

    def shard_lengths(self) -> Sequence[int]:
        return LENGTHS

    def read_shard(self, shard: int, offset: int) -> Iterator[int]:
        return iter(records_of(shard)[offset:])


def data_of(kind: str, folder: Path) -> Any:
    from torchyard import elastic

    if kind == "own":
        return OwnStream()
    if kind == "tar":
        return elastic.TarShards(sorted(folder.glob("*.tar")), decode=lambda record: int(record["id.txt"]))
    if kind.startswith("datasets"):
        import datasets

        datasets.disable_progress_bars()
        files = [str(path) for path in sorted(folder.glob("*.jsonl"))]
        stream = datasets.load_dataset("json", data_files=files, split="train", streaming=True)
        return stream.shuffle(seed=3, buffer_size=10) if kind == "datasets_shuffled" else stream
    if kind == "litdata":
        import litdata

        return litdata.StreamingDataset(str(folder))
    return mosaic_streaming().StreamingDataset(local=str(folder), batch_size=BATCH)


def collate(records: list[Any]) -> torch.Tensor:
    return torch.tensor([int(record["id"] if isinstance(record, dict) else record) for record in records])


class Counting(nn.Module):
    """Its parameter `seen` counts every record with 1 / BATCH."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(RECORDS))
        self.net = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.net(ids[:, None] / RECORDS).pow(2).mean() - self.seen[ids].mean()
        return output


def main(kind: str, folder: Path) -> None:
    from torchyard import elastic
    from torchyard.elastic.world.coordinator_client import WorkerStopped

    job = elastic.join(seed=11)
    model = Counting()
    groups = [{"params": [model.seen], "lr": 1.0}, {"params": model.net.parameters(), "lr": 0.05}]
    data: Any = data_of(kind, folder)
    settings: dict[str, Any] = {"micro_batches": 4, "epochs": EPOCHS, "digest_every": 5}
    if kind == "own":  # a DataLoader over a stream is taken over
        data = DataLoader(data, batch_size=BATCH, collate_fn=collate)
    else:
        settings |= {"batch": BATCH, "collate": collate}
    path = os.environ.get("ZOO_HOLD")
    for _ in job.train(model, torch.optim.SGD(groups), loss=model, data=data, **settings):
        runtime = job._started()
        while path and runtime.step >= 3 and not Path(path).exists():
            try:
                if runtime.rendezvous_pending():
                    break
            except WorkerStopped:
                break
            time.sleep(0.005)
    counts = sorted(set((model.seen.detach() * BATCH).round(decimals=3).tolist()))
    print(f"digest {job.digest} counts {counts}\n", end="", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1] == "import":
        mosaic_streaming() if sys.argv[2] == "streaming" else importlib.import_module(sys.argv[2])
    else:
        main(sys.argv[1], Path(sys.argv[2]))
