"""A tiny GPT with the Trainer of Transformers, as its users write it; `elastic` adds the lines of docs/elastic.md."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Records(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Each takes a while to load, so that a step lasts about as long as one of a real model."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.02)
        ids = torch.tensor([index % 100, *((index * 7 + number) % 100 for number in range(5))])
        return {"input_ids": ids, "labels": ids.clone()}


def main() -> None:
    job: Any = None
    if sys.argv[1:] == ["elastic"]:
        from torchyard import elastic

        job = elastic.join(seed=1)
    config = GPT2Config(vocab_size=128, n_embd=16, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(
        output_dir="/tmp/output",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        logging_steps=10,
        save_strategy="no",
        use_cpu=True,
    )
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Records())
    if job is not None:
        from torchyard.elastic import huggingface

        huggingface.attach(job, trainer)
    trainer.train()


if __name__ == "__main__":
    main()
