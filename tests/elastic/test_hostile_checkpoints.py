"""Checkpoints and states of unknown origin: nothing in them is executed, and nothing that they claim is allocated."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import tarfile
from collections.abc import Callable
from dataclasses import asdict
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchyard.elastic.agent.agent import shared_memory_dir  # noqa: E402
from torchyard.elastic.checkpoint import dcp_reader, files, writer  # noqa: E402
from torchyard.elastic.checkpoint.manager import CheckpointManager, Checkpoints  # noqa: E402
from torchyard.elastic.checkpoint.staged import newest_staged, owner_of  # noqa: E402
from torchyard.elastic.checkpoint.staging import Stager  # noqa: E402
from torchyard.elastic.errors import ElasticError  # noqa: E402
from torchyard.elastic.sampler import StepSampler  # noqa: E402
from torchyard.elastic.world.state import Snapshot, TrainingState  # noqa: E402
from torchyard.elastic.world.state_header import TensorRef, encode_header  # noqa: E402

pytestmark = pytest.mark.train
OLD = Path(__file__).parent / "data" / "checkpoint-0.1.tar.xz"
OLD_DIGEST = "4b0730aac4f715079426462c843f4623ff46a6602e16a6ca8b0d58cb38de9fc0"
TENS_OF_TERABYTES = [1 << 20, 1 << 23]


class Values:
    """An object with any state."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def state_dict(self) -> Any:
        return self.values

    def load_state_dict(self, values: Any) -> None:
        self.values = values


class Exploit:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._marker}",)


def sample() -> Snapshot:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(4, 4)).sum().backward()
    optimizer.step()
    return TrainingState({"model": net, "optimizer": optimizer}).capture()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    writer.write(sample(), tmp_path / "new", step=7, job="j", order={}, keep=0)
    return files.checkpoint_path(tmp_path / "new", 7)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A checkpoint that version 0.1 wrote."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    return files.checkpoint_path(tmp_path / "old", 7)


def replace(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and its hash, as an attacker would."""
    (folder / name).write_bytes(content)
    manifest = files.read_manifest(folder)
    rest = files.build_manifest(folder, step=manifest.step, job=manifest.job, order=manifest.order)
    (folder / files.MANIFEST).write_text(json.dumps(asdict(rest) | {"format": manifest.format}))
    files.verify(folder)


def refuse(folder: Path, name: str) -> ElasticError:
    with pytest.raises(ElasticError) as caught:
        writer.load(folder)
    assert str(folder / name) in caught.value.message
    return caught.value


def test_a_checkpoint_has_no_pickle_and_loads_with_the_same_bits(checkpoint: Path) -> None:
    assert sorted(entry.name for entry in checkpoint.iterdir()) == [
        "manifest.json",
        "state.json",
        "tensors.safetensors",
    ]
    assert writer.load(checkpoint).digest() == sample().digest()


def test_a_checkpoint_of_version_0_1_loads_with_the_same_bits(old: Path) -> None:
    assert (old / ".metadata").exists()
    assert files.verify(old).step == 7
    assert writer.load(old).digest() == OLD_DIGEST


@pytest.mark.parametrize("name", [".metadata", "skeleton.pt", "__0_0.distcp"])
def test_code_in_an_old_checkpoint_is_refused_and_not_executed(old: Path, tmp_path: Path, name: str) -> None:
    marker = tmp_path / "executed"
    content = io.BytesIO()
    if name == ".metadata":
        pickle.dump(Exploit(marker), content)
    else:
        torch.save(Exploit(marker), content)
    # The tensors are read at offsets: an archive at each of them.
    data = content.getvalue() if name != "__0_0.distcp" else _at_offsets(old, content.getvalue())
    replace(old, name, data)
    error = refuse(old, name)
    assert error.code == "ForeignCheckpoint"
    assert not marker.exists()


def _at_offsets(folder: Path, payload: bytes) -> bytes:
    data = bytearray((folder / "__0_0.distcp").read_bytes())
    for place in dcp_reader._read_locations(folder / ".metadata").values():
        data[place.offset : place.offset + place.length] = payload[: place.length].ljust(place.length, b"\0")
    return bytes(data)


PICKLES: list[bytes] = [
    b"cos\nsystem\n(S'true'\ntR.",
    b"cbuiltins\neval\n(S'1'\ntR.",
    b"c__builtin__\nexec\n(S''\ntR.",
    b"\x80\x04\x8c\x05torch\x8c\x0fhub.os.path.join\x93.",
    b"\x80\x04\x8c\x05torch\x8c\x04load\x93(\x8c\x01xtR.",
    b"ctorch.distributed.checkpoint.metadata\nos.system\n.",
    b"ctorch.distributed.checkpoint.filesystem\npickle\n.",
    b"cpickle\nloads\n(S''\ntR.",
    b"ctorch._utils\n_rebuild_tensor_v2\n.",
    b"Ppersistent\n.",
    b"\x80\x02\x82\x01.",
    b"itypes\nFunctionType\n.",
    b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    b"N.",
    b"",
    b"}.",
    b"ctorch.distributed.checkpoint.metadata\nMetadata\n.",
    b"ctorch.distributed.checkpoint.metadata\nMetadata\n}S'x'\nI1\nsb.",
    b"ctorch.serialization\n_get_layout\n}S'__code__'\nI1\ns\x86b.",
    b"(" * 100_000,
]


@pytest.mark.parametrize("content", PICKLES, ids=range(len(PICKLES)))
def test_any_other_pickle_is_refused_with_its_path(old: Path, content: bytes) -> None:
    replace(old, ".metadata", content)
    assert refuse(old, ".metadata").code == "ForeignCheckpoint"


def test_random_damage_of_an_old_checkpoint_raises_only_our_errors(old: Path) -> None:
    rng = random.Random(3)
    for name in (".metadata", "skeleton.pt"):
        original = (old / name).read_bytes()
        for _ in range(60):
            changed = bytearray(original)
            for _ in range(rng.randint(1, 5)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            (old / name).write_bytes(changed)
            try:
                writer.load(old)
            except ElasticError:
                continue
        (old / name).write_bytes(original)


def test_an_old_checkpoint_cannot_lead_to_a_file_outside(old: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes((old / "__0_0.distcp").read_bytes())
    metadata = (old / ".metadata").read_bytes().replace(b"\x8c\x0c__0_0.distcp", b"\x8c\x0c../../outsid")
    replace(old, ".metadata", metadata)
    assert "is not a file of the checkpoint" in refuse(old, ".metadata").message


def change_safetensors(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = (folder / writer.TENSORS).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header = change(header) or header
    encoded = json.dumps(header).encode()
    replace(folder, writer.TENSORS, len(encoded).to_bytes(8, "little") + encoded + data[8 + length :])


def first(header: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = header["model.0.weight"]
    return entry


@pytest.mark.parametrize(
    "change",
    [
        lambda header: first(header).update(shape=TENS_OF_TERABYTES),
        lambda header: first(header).update(shape=TENS_OF_TERABYTES, data_offsets=[0, 1 << 45]),
        lambda header: first(header).update(data_offsets=[-32, 0]),
        lambda header: first(header).update(data_offsets=[4, 36]),
        lambda header: first(header).update(shape=[True, 8]),
        lambda header: first(header).update(shape=[2.0, 4]),
        lambda header: first(header).update(dtype="pickle"),
        lambda header: first(header).update(dtype="F64", shape=[4]),
        lambda header: header.pop("model.0.weight"),
        lambda header: header.update(more=header["model.0.weight"]),
        lambda header: {"model.0.weight": first(header)},
        lambda header: [header],
        lambda header: {"model.0.weight": None},
    ],
)
def test_a_wrong_header_of_the_tensors_is_refused_before_anything_is_allocated(
    checkpoint: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    change_safetensors(checkpoint, change)
    refuse(checkpoint, writer.TENSORS)


def test_a_checkpoint_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, tensors: Any) -> None:
        path.write_bytes(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchyard.elastic.checkpoint.safetensors_file.write", full)
    with pytest.raises(OSError, match="No space"):
        writer.write(sample(), tmp_path / "root", step=1, job="j", order={}, keep=0)
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize("length", [0, 4, 8, 60, -1, -40])
def test_a_truncated_file_is_refused_with_its_path(checkpoint: Path, length: int) -> None:
    data = (checkpoint / writer.TENSORS).read_bytes()
    replace(checkpoint, writer.TENSORS, data[:length])
    with pytest.raises(ElasticError) as caught:
        writer.load(checkpoint)
    assert str(checkpoint) in caught.value.message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b"\x80\x04.",
        b'{"format":"torchyard-state/1","skeleton":{"eval":"1"},"tensors":[]}',
        b'{"format":"torchyard-state/1","skeleton":{"tensor":0},"tensors":[["float32",[1048576,8388608]]]}',
        b'{"format":"torchyard-state/1","skeleton":{"tensor":5},"tensors":[["float32",[1]]]}',
        b'{"format":"torchyard-state/1","skeleton":null,"tensors":[["load",[1]]]}',
        b'{"format":"torchyard-state/1","skeleton":{"dict":[[[],1]]},"tensors":[]}',
        b'{"format":"torchyard-state/1","skeleton":{"bytes":"%"},"tensors":[]}',
    ],
)
def test_a_wrong_state_is_refused_with_its_path(checkpoint: Path, content: bytes) -> None:
    replace(checkpoint, writer.STATE, content)
    refuse(checkpoint, writer.STATE)


def test_a_link_among_the_files_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / writer.TENSORS).rename(tmp_path / "outside")
    (checkpoint / writer.TENSORS).symlink_to(tmp_path / "outside")
    refuse(checkpoint, writer.TENSORS)


def test_a_sparse_file_of_terabytes_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    """The size of a file says nothing about the memory of the machine."""
    tensor = torch.empty(TENS_OF_TERABYTES, dtype=torch.float32, device="meta")
    (checkpoint / writer.STATE).write_bytes(encode_header({"m": TensorRef(0)}, [tensor]))
    os.truncate(checkpoint / writer.TENSORS, min(1 << 45, 8 << 40))
    with pytest.raises(ElasticError):
        writer.load(checkpoint)


def test_a_header_from_a_peer_cannot_claim_more_than_was_sent() -> None:
    tensor = torch.empty(TENS_OF_TERABYTES, dtype=torch.float32, device="meta")
    header = encode_header({"m": TensorRef(0)}, [tensor])
    with pytest.raises(ElasticError, match="there are 4096"):
        Snapshot.empty_like(header, nbytes=4096)
    with pytest.raises(ElasticError, match="bytes of memory"):
        Snapshot.empty_like(header)


class Level(IntEnum):
    HIGH = 3


class Mode(StrEnum):
    FAST = "fast"


def test_every_plain_value_is_restored() -> None:
    values = {
        "int": 1 << 100,
        "float": -0.0,
        "infinite": float("-inf"),
        "text": "\0tensor:0 \ud800",
        "bytes": b"\0\xff",
        "complex": 1 - 2j,
        3: [None, True, {"nested": []}],
        (1, "a"): "a tuple is a key",
        "level": Level.HIGH,
        "mode": Mode.FAST,
        "double": torch.tensor([1.5], dtype=torch.float64),
        "wide": torch.tensor([1 + 2j], dtype=torch.complex128),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(True),
    }
    snapshot = TrainingState({"x": Values(values)}).capture()
    received = Snapshot.empty_like(snapshot.header(), nbytes=snapshot.nbytes)
    for target, source in zip(received.tensors, snapshot.tensors, strict=True):
        target.copy_(source)
    assert received.digest() == snapshot.digest()
    restored = Values(None)
    TrainingState({"x": restored}).restore(received)
    assert str(restored.values) == str(values | {"level": 3, "mode": "fast"})


def test_tensors_whose_keys_look_alike_are_kept_apart(tmp_path: Path) -> None:
    values = {1: torch.zeros(1), "1": torch.ones(1), "a.b": torch.ones(2), "a": {"b": torch.zeros(2)}}
    snapshot = TrainingState({"x": Values(values)}).capture()
    writer.write(snapshot, tmp_path, step=1, job="j", order={}, keep=0)
    assert writer.load(files.checkpoint_path(tmp_path, 1)).digest() == snapshot.digest()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"deep": [{"fn": print}]}, r"x\.deep\.0\.fn is a builtins\.builtin_function_or_method"),
        ({"path": Path("p")}, r"x\.path is a pathlib\.PosixPath"),
        ({Path("p"): 1}, r"a key of x is a pathlib\.PosixPath"),
        ({"sparse": torch.eye(2).to_sparse()}, r"x\.sparse is a tensor that is not dense"),
        ({"large": 1 << 10_000}, r"x\.large is an integer of 10001 bits"),
        ({"dtype": torch.float32}, r"x\.dtype is a torch\.dtype"),
    ],
)
def test_what_could_not_be_loaded_is_refused_when_it_is_saved(values: Any, message: str) -> None:
    with pytest.raises(ElasticError, match=message) as caught:
        TrainingState({"x": Values(values)}).capture()
    assert caught.value.code == "UnknownState"


def stage(folder: Path, step: int, token: str) -> None:
    stager = Stager(folder, "0", owner=owner_of(token))
    stager.stage(step, sample())
    stager.close()


def test_a_staged_state_of_another_job_is_ignored(tmp_path: Path) -> None:
    """The directory in shared memory depends on the path of the job only: a removed job leaves its state there."""
    stage(tmp_path, 20, "earlier")
    assert newest_staged(tmp_path, owner_of("later")) is None
    manager = CheckpointManager(StepSampler(8, 2), job="j", name="0", memory=tmp_path, token="later")
    assert manager.newest() == 0
    manager.close()
    stage(tmp_path, 3, "later")
    newest = newest_staged(tmp_path, owner_of("later"))
    assert newest is not None
    assert newest.step == 3
    assert "later" not in owner_of("later")


def test_a_staged_state_that_is_not_ours_is_refused_or_ignored(tmp_path: Path) -> None:
    stage(tmp_path, 2, "t")
    (path,) = (staged.path for staged in [newest_staged(tmp_path, owner_of("t"))] if staged)
    original = path.read_bytes()
    head = json.loads(original[:4096])
    for change in ({"header": 1 << 40}, {"header": -1}, {"body": 1.5}, {"step": "2"}, {"whole": "yes"}, {"format": 1}):
        path.write_bytes(json.dumps(head | change).encode().ljust(4096) + original[4096:])
        staged = newest_staged(tmp_path, owner_of("t"))
        if staged is not None and staged.path == path:
            with pytest.raises(ElasticError, match="is not a state"):
                staged.load()
    path.unlink()
    (tmp_path / "real").write_bytes(original)
    path.symlink_to(tmp_path / "real")
    assert newest_staged(tmp_path, owner_of("t")) is None


def test_a_refused_checkpoint_stops_the_job_with_its_path(tmp_path: Path, old: Path) -> None:
    """It is not skipped in silence: its hashes are valid, so it is not damage."""
    replace(old, ".metadata", PICKLES[0])
    sampler = StepSampler(8, 2, epochs=2)
    manager = CheckpointManager(
        sampler, job="j", name="0", memory=tmp_path / "memory", checkpoints=Checkpoints(str(old.parent))
    )
    with pytest.raises(ElasticError, match=r"os\.system"):
        manager.load(TrainingState({"x": Values({})}))
    manager.close()


def test_the_directory_in_shared_memory_is_a_function_of_the_path(tmp_path: Path) -> None:
    assert shared_memory_dir(tmp_path) != shared_memory_dir(tmp_path / "other")
