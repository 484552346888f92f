# mypy: ignore-errors
"""After PyTorch's example `minGPT-ddp`: a trainer class, decay groups and clipping."""

import torch
from tests.elastic.programs.examples.records import finished, log, text_records
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(16, 16), nn.Embedding(8, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 16, bias=False)

    def forward(self, idx, targets):
        x = self.tokens(idx) + self.positions(torch.arange(idx.size(1)))
        x = self.block(x, src_mask=nn.Transformer.generate_square_subsequent_mask(idx.size(1)))
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def create_optimizer(model):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=3e-3)


class Trainer:
    def __init__(self, model, train_dataset, test_dataset):
        self.train_dataset = train_dataset
        self.train_loader = self._prepare_dataloader(train_dataset)
        self.test_loader = self._prepare_dataloader(test_dataset)
        self.model = model
        self.optimizer = create_optimizer(model)
        self.model = DDP(self.model)

    def _prepare_dataloader(self, dataset):
        return DataLoader(
            dataset,
            batch_size=16,
            sampler=DistributedSampler(dataset),
        )

    def _run_batch(self, source, targets, train):
        with torch.set_grad_enabled(train):
            _, loss = self.model(source, targets)
        if train:
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch, dataloader, train):
        self.model.train(train)
        for i, (source, targets) in enumerate(dataloader):
            loss = self._run_batch(source, targets, train)
            if train:
                log(f"epoch {epoch} | iter {i} | loss {loss:.5f}")

    def train(self):
        for epoch in range(3):
            self.train_loader.sampler.set_epoch(epoch)
            self._run_epoch(epoch, self.train_loader, train=True)
            self._run_epoch(epoch, self.test_loader, train=False)


init_process_group("gloo")
torch.manual_seed(1)
model = GPT()
Trainer(model, text_records(72, seed=1), text_records(16, seed=2)).train()
finished(model)
destroy_process_group()
