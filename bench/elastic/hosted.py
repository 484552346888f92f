"""`python hosted.py transformers|lightning bare|accumulating|strict|fast FOLDER`: trains with a framework's Trainer.

Prints the time of a step, and the sha256 of the model. `bare` is the framework alone. So is `accumulating`: there a
step of Lightning has four micro-batches, as it has with the runtime.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import os
import statistics
import time
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same kernels with and without the runtime

import torch

from torchyard import elastic

parser = argparse.ArgumentParser()
parser.add_argument("package", choices=["transformers", "lightning"])
parser.add_argument("kind", choices=["bare", "accumulating", "strict", "fast"])
parser.add_argument("folder")
parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--width", type=int, default=128, help="of the Trainer's GPT; Lightning's MLP is 8 times as wide")
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--tokens", type=int, default=64, help="the length of a record")
options = parser.parse_args()

PARTS, RECORDS = 4, 640
ALONE = options.kind in ("bare", "accumulating")
ACCUMULATED = PARTS if (options.package, options.kind) == ("lightning", "accumulating") else 1
WARM_UP, RUN = 10, 10
"""The steps before the measurement, and how many are measured together: a GPU may lag behind its program."""
job = elastic.join(seed=1)
numbers = itertools.count(1)
times: list[float] = []


def count_step() -> None:
    number = next(numbers)
    if number >= WARM_UP and (number - WARM_UP) % RUN == 0:
        if options.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter())


def transformers_trainer() -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            count_step()

    size = {"n_embd": options.width, "n_layer": options.layers, "n_head": options.width // 32}
    config = GPT2Config(vocab_size=512, n_positions=options.tokens, bos_token_id=0, eos_token_id=0, **size)
    model = GPT2LMHeadModel(config)
    rows = torch.randint(0, 512, (RECORDS, options.tokens), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = TrainingArguments(
        options.folder,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=PARTS,
        max_steps=options.steps,
        save_strategy="no",
        report_to=[],
        use_cpu=options.device == "cpu",
        disable_tqdm=True,
        seed=1,
    )
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Clock()])
    if not ALONE:
        from torchyard.elastic import huggingface

        huggingface.attach(job, trainer, mode=options.kind)
    trainer.train()
    return model


def lightning_trainer() -> torch.nn.Module:
    name = "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"
    pytorch: Any = importlib.import_module(name)

    from torchyard.elastic.lightning import ElasticStrategy

    class Clock(pytorch.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            if (index + 1) % ACCUMULATED == 0:
                count_step()

    class Module(pytorch.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            width = 8 * options.width
            layers = [torch.nn.Linear(width, width) for _ in range(2 * options.layers)]
            self.net = torch.nn.Sequential(torch.nn.Linear(64, width), *layers)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            output: torch.Tensor = self.net(batch[0]).pow(2).mean()
            return output

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    source = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(RECORDS, options.tokens, 64, generator=source))
    strategy: Any = "auto" if ALONE else ElasticStrategy(job, micro_batches=PARTS, mode=options.kind)
    trainer = pytorch.Trainer(
        strategy=strategy,
        accelerator="gpu" if options.device == "cuda" else "cpu",
        devices=1,
        max_steps=options.steps,
        accumulate_grad_batches=ACCUMULATED,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Clock()],
    )
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4 * PARTS // ACCUMULATED))
    return module


module = transformers_trainer() if options.package == "transformers" else lightning_trainer()
devices = {parameter.device.type for parameter in module.parameters()}
gaps = [after - before for before, after in itertools.pairwise(times)]
print(f"median {statistics.median(gaps) / RUN * 1000 if gaps else float('nan'):.3f} on {devices}", flush=True)
if not ALONE:
    print(f"digest {job.digest}", flush=True)
