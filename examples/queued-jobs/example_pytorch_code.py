"""The network of PyTorch's quickstart on Fashion-MNIST, or on MNIST if only that is there; saves model.pth.

Reads the usual idx files (plain, .gz or .xz) from `data` next to this file, or from the directory in the argument. It needs
torch and numpy, not torchvision.
"""

import gzip
import lzma
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
OPENERS = {"": open, ".gz": gzip.open, ".xz": lzma.open}


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(28 * 28, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


def read(directory, name):
    for ending, opened in OPENERS.items():
        path = directory / f"{name}{ending}"
        if path.exists():
            with opened(path, "rb") as file:
                content = file.read()
            dimensions = content[3]
            shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
            return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    raise SystemExit(f"there is no {name} in {directory}: copy the idx files of Fashion-MNIST or MNIST there first")


def load(directory, part):
    images = torch.from_numpy(read(directory, f"{part}-images-idx3-ubyte").copy()).float().div_(255)
    return images, torch.from_numpy(read(directory, f"{part}-labels-idx1-ubyte").astype(np.int64))


def main():
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "data"
    # The test images are enough to see a small network learn; the training images are used if they are there.
    part = "train" if list(directory.glob("train-images-idx3-ubyte*")) else "t10k"
    images, labels = load(directory, part)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"Using {device} device", flush=True)
    model = NeuralNetwork().to(device)
    loss_function, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1, 3):
        for number, chosen in enumerate(torch.randperm(len(labels)).split(64)):
            loss = loss_function(model(images[chosen].to(device)), labels[chosen].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 100 == 0:
                print(f"epoch {epoch} loss: {loss.item():>7f}  [{number * 64:>5d}/{len(labels):>5d}]", flush=True)
    torch.save(model.state_dict(), HERE / "model.pth")
    print("Saved PyTorch Model State to model.pth", flush=True)


if __name__ == "__main__":
    main()
