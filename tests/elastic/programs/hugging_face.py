"""A tiny GPT with `transformers.Trainer` or TRL: `python hugging_face.py trainer|sft|resume FOLDER`.

With ZOO_HOLD, a step waits for that file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from torchyard import elastic
from torchyard.elastic import huggingface
from torchyard.elastic.world.coordinator_client import WorkerStopped

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
RECORDS, VOCABULARY = 72, 128
job = elastic.join(seed=42)


class Hold(TrainerCallback):  # type: ignore[misc]
    """Waits for the file ZOO_HOLD after the first steps, but lets the world change at every step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        path, runtime = os.environ.get("ZOO_HOLD"), job._started()
        while path and runtime.step >= 3 and not Path(path).exists():
            try:
                if runtime.rendezvous_pending():
                    return
            except WorkerStopped:
                return
            time.sleep(0.005)


def records() -> list[dict[str, Any]]:
    return [{"input_ids": [n, *[(n * 7 + i) % 100 for i in range(5)]]} for n in range(RECORDS)]


def collate(features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    ids = torch.tensor([list(feature["input_ids"]) for feature in features])
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}


config = GPT2Config(
    vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0
)
model = GPT2LMHeadModel(config)
common: dict[str, Any] = {
    "output_dir": str(FOLDER),
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "num_train_epochs": 3,
    "learning_rate": 1e-2,
    "max_grad_norm": 0.5,
    "warmup_steps": 3,
    "logging_steps": 2,
    "eval_strategy": "epoch",
    "save_strategy": "steps",
    "save_steps": 5,
    "report_to": [],
    "use_cpu": True,
    "disable_tqdm": True,
    "remove_unused_columns": False,
    "seed": 42,
}
callbacks: list[Any] = [Hold()]
if KIND == "sft":
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(WordLevel({str(number): number for number in range(VOCABULARY)}, unk_token="0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="0")
    data = Dataset.from_list(records())
    options = SFTConfig(**(common | {"max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}}))
    trainer: Any = SFTTrainer(
        model,
        options,
        train_dataset=data,
        eval_dataset=data,
        data_collator=collate,
        processing_class=tokenizer,
        callbacks=callbacks,
    )
else:
    options = TrainingArguments(**common)
    trainer = Trainer(
        model, options, train_dataset=records(), eval_dataset=records()[:8], data_collator=collate, callbacks=callbacks
    )
huggingface.attach(job, trainer, digest_every=5, mode=os.environ.get("ZOO_MODE", "strict"))
result = trainer.train(resume_from_checkpoint=KIND == "resume")
losses = [round(entry["loss"], 6) for entry in trainer.state.log_history if "loss" in entry]
evaluations = [round(entry["eval_loss"], 6) for entry in trainer.state.log_history if "eval_loss" in entry]
print(f"digest {job.digest}", flush=True)
print(f"sum {sum(float(p.detach().double().abs().sum()) for p in model.parameters())}", flush=True)
print(f"logs {trainer.state.global_step} {trainer.state.epoch} {losses} {evaluations}", flush=True)
