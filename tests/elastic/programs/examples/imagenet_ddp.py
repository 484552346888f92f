# mypy: ignore-errors
"""After PyTorch's example `imagenet`: meters, validation, the best accuracy, and checkpoints of the first rank."""

import os
import time

import torch
import torch.distributed as dist
from tests.elastic.programs.examples.records import finished, image_records, log
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler

FOLDER = os.environ.get("EXAMPLE_FOLDER", ".")


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(out)))


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


def train(train_loader, model, criterion, optimizer, epoch):
    losses, batch_time = AverageMeter(), AverageMeter()
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end, 1)
        end = time.time()
        log(f"Epoch: [{epoch}][{i}/{len(train_loader)}] Time {batch_time.avg:.3f} Loss {losses.avg:.4f}")


def validate(val_loader, model, criterion):
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, target in val_loader:
            top1.update((model(images).argmax(1) == target).float().mean().item(), images.size(0))
    return top1.avg


def main():
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), Block(4), Block(4), nn.Flatten(), nn.Linear(256, 4))
    model = nn.parallel.DistributedDataParallel(net) if distributed else net
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.1)
    train_data = image_records(72, seed=1)
    train_sampler = DistributedSampler(train_data) if distributed else None
    train_loader = DataLoader(train_data, batch_size=16, shuffle=(train_sampler is None), sampler=train_sampler)
    val_loader = DataLoader(image_records(16, seed=2), batch_size=16)
    best = 0.0
    for epoch in range(3):
        if distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch)
        best = max(best, validate(val_loader, model, criterion))
        scheduler.step()
        if not distributed or dist.get_rank() == 0:
            torch.save({"epoch": epoch + 1, "state_dict": net.state_dict(), "best": best}, f"{FOLDER}/{os.getpid()}.pt")
    finished(net)


main()
