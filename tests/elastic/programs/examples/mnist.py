# mypy: ignore-errors
"""After PyTorch's example `mnist`."""

import os

import torch
from tests.elastic.programs.examples.records import finished, image_records, log
from torch import nn, optim
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler

from torchyard import elastic


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(36, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        x = F.relu(self.fc1(self.dropout(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        log(f"epoch {epoch} [{batch_idx}/{len(train_loader)} of {len(train_loader.dataset)}] loss {loss.item():.4f}")


def test(model, test_loader):
    model.eval()
    with torch.no_grad():
        correct = sum((model(data).argmax(1) == target).sum().item() for data, target in test_loader)
    print(f"test: {correct} of {len(test_loader.dataset)}")


def main():
    job = elastic.join(seed=1)
    torch.manual_seed(1)
    train_data = image_records(72, seed=1)
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    sampler = DistributedSampler(train_data) if distributed else None
    train_loader = DataLoader(train_data, batch_size=16, sampler=sampler, shuffle=sampler is None)
    test_loader = DataLoader(image_records(16, seed=2), batch_size=16)
    net = Net()
    model = nn.parallel.DistributedDataParallel(net) if distributed else net
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch, train_loader in job.epochs(  # noqa: B020  # in place of the loader
        model, optimizer, data=train_loader, micro_batches=4, epochs=3, also={"scheduler": scheduler}
    ):
        train(model, train_loader, optimizer, epoch)
        test(model, test_loader)
        scheduler.step()
    finished(net)


main()
