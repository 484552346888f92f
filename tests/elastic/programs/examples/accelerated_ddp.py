# mypy: ignore-errors
"""A script with Accelerate, as its documentation writes them."""

import torch
from accelerate import Accelerator
from tests.elastic.programs.examples.records import finished, image_records, log
from torch import nn
from torch.utils.data import DataLoader


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    loader = DataLoader(image_records(72, seed=1), batch_size=16, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(net, optimizer, loader, scheduler)
    for epoch in range(3):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            log(f"epoch {epoch} loss {loss.item():.4f}")
        scheduler.step()
    finished(net)


main()
