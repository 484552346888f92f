"""Trains until it is stopped, prints a line now and then, and serves HTTP: for commands on a running job."""

from __future__ import annotations

import argparse
import contextlib
import http.server
import threading
import time

import torch

from torchyard import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--port", type=int, required=True)
args = parser.parse_args()

job = elastic.join(seed=1)
print(f"begun with lr {args.lr}\n", end="", flush=True)
with contextlib.suppress(OSError):  # the port of an earlier worker of the pod
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
model = torch.nn.Linear(8, 1)
data = torch.utils.data.TensorDataset(torch.randn(64, 8, generator=torch.Generator().manual_seed(1)))
training = job.train(
    model,
    torch.optim.SGD(model.parameters(), lr=args.lr),
    loss=lambda batch: model(batch[0]).pow(2).mean(),
    data=data,
    batch=8,
    micro_batches=2,
    epochs=100_000,
)
for _ in training:
    print("tick\n", end="", flush=True)
    time.sleep(0.2)
