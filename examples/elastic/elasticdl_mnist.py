"""ElasticDL's MNIST tutorial as one program: its dataset, its service, its controller, its loop, as the tutorial has them.

python -m torchyard.elastic run -n 2 -- python elasticdl_mnist.py --training_data DIR --validation_data DIR
"""

import argparse
import hashlib
import sys

import cv2
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from elasticai_api.common.data_shard_service import RecordIndexService
from elasticai_api.pytorch.controller import PyTorchAllReduceController
from torch.utils.data import DataLoader, Dataset


class ElasticDataset(Dataset):
    def __init__(self, images, data_shard_service=None):
        self.data_shard_service = data_shard_service
        self._images = images

    def __len__(self):
        if self.data_shard_service:
            # Set the maxsize because the size of dataset is not fixed
            # when using dynamic sharding
            return sys.maxsize
        else:
            return len(self._images)

    def __getitem__(self, index):
        if self.data_shard_service:
            index = self.data_shard_service.fetch_record_index()
            return self.read_image(index)
        else:
            return self.read_image(index)

    def read_image(self, index):
        image_path, label = self._images[index]
        image = cv2.imread(image_path)
        image = np.array(image / 255.0, np.float32)
        image = image.reshape(3, 28, 28)
        return image, label


def train_one_batch(model, optimizer, data, target):
    optimizer.zero_grad()
    output = model(data)
    loss = F.nll_loss(output, target)
    loss.backward()
    optimizer.step()
    return loss


def test(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(data).argmax(1) == target).sum().item() for data, target in loader)
    print(f"accuracy {right / len(loader.dataset):.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--num_epochs", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--training_data", required=True)
    parser.add_argument("--validation_data", required=True)
    parser.add_argument("--num_workers", type=int, default=2)
    args = parser.parse_args()

    train_data = torchvision.datasets.ImageFolder(args.training_data)
    test_data = torchvision.datasets.ImageFolder(args.validation_data)
    data_shard_service = RecordIndexService(
        batch_size=args.batch_size,
        dataset_size=len(train_data.imgs),
        num_epochs=args.num_epochs,
        shuffle=True,
        dataset_name="mnist_training_data",
    )
    train_dataset = ElasticDataset(train_data.imgs, data_shard_service)
    train_loader = DataLoader(train_dataset, batch_size=args.batch_size, num_workers=args.num_workers)
    test_loader = DataLoader(ElasticDataset(test_data.imgs), batch_size=args.batch_size)

    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(1152, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        nn.LogSoftmax(1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate)
    allreduce_controller = PyTorchAllReduceController(data_shard_service)
    allreduce_controller.set_broadcast_model(model)
    allreduce_controller.set_broadcast_optimizer(optimizer)
    # Use the elastic function to wrap the training function with a batch.
    elastic_train_one_batch = allreduce_controller.elastic_run(train_one_batch)

    with allreduce_controller.scope():
        for batch_idx, (data, target) in enumerate(train_loader):
            loss = elastic_train_one_batch(model, optimizer, data, target)
            if batch_idx % 10 == 0:
                print("loss = {}, step = {}".format(loss, batch_idx), flush=True)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(f"weights {hashlib.sha256(weights).hexdigest()}", flush=True)
    test(model, test_loader)
