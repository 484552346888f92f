"""The documents' training program: a small convolutional network on MNIST or Fashion-MNIST, with one or more replicas.

The network, the flags and the output are those of the Kubeflow example that the documents run. New here:

- Images are read from the usual idx files (plain, .gz or .xz) under --data; torchvision is not needed. Missing files are
  downloaded.
- The model is saved atomically after every epoch, and --resume continues from there.
- --shard divides the batches among the replicas. Without it, as in the original, every replica trains on all images,
  each in its own order.

It needs only torch and numpy. Under an operator or torchrun it reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

import argparse
import gzip
import lzma
import os
import struct
import urllib.request
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
RANK = int(os.environ.get("RANK", 0))
MODEL = "mnist_cnn.pt"
OPENERS = {"": open, ".gz": gzip.open, ".xz": lzma.open}
MIRRORS = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5, 1)
        self.conv2 = nn.Conv2d(20, 50, 5, 1)
        self.fc1 = nn.Linear(4 * 4 * 50, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(x, 2, 2)
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2, 2)
        x = x.flatten(1)
        x = F.relu(self.fc1(x))
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


class Images:
    """Images and labels of one pair of idx files, normalised as in the documents, in memory."""

    def __init__(self, directory, part, dataset, limit=0):
        pixels = read_idx(directory, f"{part}-images-idx3-ubyte", dataset)
        labels = read_idx(directory, f"{part}-labels-idx1-ubyte", dataset)
        if limit:
            pixels, labels = pixels[:limit], labels[:limit]
        self.pixels = torch.from_numpy(pixels.copy()).unsqueeze(1)
        self.labels = torch.from_numpy(labels.astype(np.int64))

    def __len__(self):
        return len(self.labels)

    def batch(self, chosen, device):
        data = self.pixels[chosen].to(device).float().div_(255).sub_(0.1307).div_(0.3081)
        return data, self.labels[chosen].to(device)


def read_idx(directory, name, dataset):
    """Return the array of an idx file; download the file first if it is missing."""
    paths = [directory / f"{name}{ending}" for ending in OPENERS if (directory / f"{name}{ending}").exists()]
    path = paths[0] if paths else download(directory, name, dataset)
    with OPENERS[path.suffix](path, "rb") as file:
        content = file.read()
    zero, kind, dimensions = struct.unpack(">HBB", content[:4])
    if zero or kind != 8:
        raise SystemExit(f"{path} is not an idx file of bytes")
    shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def download(directory, name, dataset):
    url = f"{MIRRORS[dataset]}{name}.gz"
    print(f"Downloading {url}", flush=True)
    path = directory / f"{name}.gz"
    part = directory / f".{name}.{RANK}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        urllib.request.urlretrieve(url, part)
        part.replace(path)
    except OSError as error:
        raise SystemExit(
            f"there is no {name} (.gz, .xz) in {directory}, and it cannot be downloaded: {error}\n"
            f"Put the four idx files of {dataset} there, or name their directory with --data."
        ) from None
    return path


def schedule(images, args, epoch):
    """Return the batches of this replica in this epoch, as (number within the epoch, indexes of images).

    With --shard, batch n of the whole training goes to replica n modulo the world size: 48 batches are 16 for each of
    three. All replicas must take the same number of steps, so the last round is filled with the first batches of its epoch.
    """
    offset = 0 if args.shard else RANK
    order = torch.Generator().manual_seed((args.seed + offset) * 1000 + epoch)
    batches = torch.randperm(len(images), generator=order).split(args.batch_size)
    if not args.shard:
        return list(enumerate(batches))
    before = (epoch - 1) * len(batches)
    numbers = [n for n in range(len(batches)) if (before + n) % WORLD_SIZE == RANK]
    if epoch == args.epochs and (before + len(batches)) % WORLD_SIZE:
        rest = (before + len(batches)) % WORLD_SIZE
        numbers += [RANK - rest] if rest <= RANK else []
    return [(number, batches[number]) for number in numbers]


def train(args, model, device, images, optimizer, epoch, writer):
    model.train()
    count = -(-len(images) // args.batch_size)
    mine = schedule(images, args, epoch)
    for step, (number, chosen) in enumerate(mine):
        data, target = images.batch(chosen, device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if step % args.log_interval == 0:
            print(
                "Train Epoch: {} [{}/{} ({:.0f}%)]\tloss={:.4f}".format(
                    epoch, number * len(data), len(images), 100.0 * number / count, loss.item()
                ),
                flush=True,
            )
            writer.add_scalar("loss", loss.item(), epoch * count + number)
    return len(mine)


def test(args, model, device, images, writer, epoch):
    model.eval()
    correct = 0
    with torch.no_grad():
        for chosen in torch.arange(len(images)).split(args.test_batch_size):
            data, target = images.batch(chosen, device)
            correct += model(data).argmax(1).eq(target).sum().item()
    accuracy = correct / len(images)
    print(f"\naccuracy={accuracy:.4f}\n", flush=True)
    writer.add_scalar("accuracy", accuracy, epoch)


class NoWriter:
    """Writes nothing; used without tensorboardX."""

    def add_scalar(self, name, value, step):
        pass


def summary_writer(directory):
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        return NoWriter()
    return SummaryWriter(directory)


def save(path, model, optimizer, epoch):
    """Replace the file atomically, so that a reader never finds half of it, even if the training is killed.

    The file holds the parameters, as in the documents; a second file holds what --resume needs besides.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for goal, content in (
        (path.with_suffix(".resume.pt"), {"optimizer": optimizer.state_dict(), "epoch": epoch}),
        (path, model.state_dict()),
    ):
        part = goal.with_name(f".{goal.name}.part")
        torch.save(content, part)
        part.replace(goal)


def resume(path, model, optimizer, device):
    """Load the saved state, if there is one, and return the next epoch."""
    extra = path.with_suffix(".resume.pt")
    if not path.exists() or not extra.exists():
        return 1
    model.load_state_dict(torch.load(path, map_location=device, weights_only=True))
    state = torch.load(extra, map_location=device, weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    print(f"Resuming after epoch {state['epoch']} from {path}", flush=True)
    return state["epoch"] + 1


def threads():
    """Return this replica's share of the cores; by default every replica would use all of them."""
    configured = os.environ.get("OMP_NUM_THREADS")
    return int(configured) if configured else max(1, len(os.sched_getaffinity(0)) // WORLD_SIZE)


def arguments(defaults):
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="input batch size for training")
    parser.add_argument("--test-batch-size", type=int, default=1000, metavar="N", help="input batch size for testing")
    parser.add_argument("--epochs", type=int, default=1, metavar="N", help="number of epochs to train")
    parser.add_argument("--lr", type=float, default=0.01, metavar="LR", help="learning rate")
    parser.add_argument("--momentum", type=float, default=0.5, metavar="M", help="SGD momentum")
    parser.add_argument("--adam", action="store_true", help="Adam instead of SGD")
    parser.add_argument("--no-cuda", action="store_true", help="disables CUDA training")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="random seed")
    parser.add_argument("--log-interval", type=int, default=10, metavar="N", help="batches between two lines of log")
    parser.add_argument("--save-model", action="store_true", help="save the model in the current directory too")
    parser.add_argument("--dir", default="logs", metavar="L", help="directory where summary logs are stored")
    parser.add_argument("--backend", choices=["gloo", "nccl", "mpi"], default="gloo", help="distributed backend")
    parser.add_argument("--dataset", choices=list(MIRRORS), default="mnist", help="which images")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the idx files, or a directory of them per dataset")
    parser.add_argument("--models", type=Path, metavar="DIR", help=f"where {MODEL} is saved after every epoch")
    parser.add_argument("--resume", action="store_true", help="continue from the model saved in --models")
    parser.add_argument("--shard", action="store_true", help="divide the batches among the replicas")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="train and test on the first N images only")
    parser.set_defaults(**defaults)
    args = parser.parse_args()
    if args.resume and not args.models:
        parser.error("--resume needs --models")
    return args


def data_directory(args):
    """Return `data` next to this program, as in images with data, else `../data`, as in the documents."""
    bundled = Path(__file__).resolve().parent / "data"
    chosen = args.data or (bundled if bundled.is_dir() else Path("../data"))
    return chosen / args.dataset if (chosen / args.dataset).is_dir() else chosen


def main(**defaults):
    """Train as the command line says; `defaults` replace the defaults of the flags."""
    args = arguments(defaults)
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    if use_cuda:
        print("Using CUDA", flush=True)
    writer = summary_writer(args.dir) if RANK == 0 else NoWriter()
    torch.set_num_threads(threads())
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if use_cuda else "cpu")

    if WORLD_SIZE > 1:
        print(f"Using distributed PyTorch with {args.backend} backend", flush=True)
        dist.init_process_group(backend=args.backend)
    directory = data_directory(args)
    training = Images(directory, "train", args.dataset, args.limit)
    testing = Images(directory, "t10k", args.dataset, args.limit)

    plain = Net().to(device)
    model = nn.parallel.DistributedDataParallel(plain) if dist.is_initialized() else plain
    if args.adam:
        optimizer = optim.Adam(model.parameters(), lr=args.lr)
    else:
        optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)

    first = resume(args.models / MODEL, plain, optimizer, device) if args.resume else 1
    steps = 0
    for epoch in range(first, args.epochs + 1):
        steps += train(args, model, device, training, optimizer, epoch, writer)
        test(args, plain, device, testing, writer, epoch)
        if args.models and RANK == 0:
            save(args.models / MODEL, plain, optimizer, epoch)
    print(f"replica {RANK} of {WORLD_SIZE} trained {steps} times", flush=True)
    if args.save_model and RANK == 0:
        torch.save(plain.state_dict(), MODEL)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
