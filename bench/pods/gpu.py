"""A sandboxed pod with `nvidia.com/gpu: 1` trains on the GPU; one without sees none. Needs a GPU and torch.

`python bench/pods/gpu.py` prints one line per pod. Uses the node's own parts, without the API server.
"""

from __future__ import annotations

import asyncio
import platform
import sys
import tempfile
import time
from pathlib import Path

from torchyard.node.devices import nvidia
from torchyard.node.images import python
from torchyard.node.images.store import ImageStore
from torchyard.node.network.settings import Ranges
from torchyard.node.pod.home import PodHome
from torchyard.node.pod.launch import Parts, build
from torchyard.node.settings import NodeSettings
from torchyard.node.shim import record
from torchyard.node.shim.client import KeeperClient, ShimClient
from torchyard.node.shutdown import stop_pods

TRAIN = """
import os, time, torch
print("visible", os.environ["CUDA_VISIBLE_DEVICES"] or "none", "cuda", torch.cuda.is_available())
if torch.cuda.is_available():
    print("on", torch.cuda.get_device_name(0))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(4096, 1024, device="cuda"), torch.randint(0, 10, (4096,), device="cuda")
    begun = time.time()
    for step in range(200):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        if step in (0, 199): print("step", step, "loss", round(loss.item(), 4))
    print("200 steps in", round(time.time() - begun, 2), "s")
"""


async def run_pod(root: Path, name: str, gpus: int, store: ImageStore, allocations: nvidia.Allocations) -> None:
    settings = NodeSettings(root=root)
    resources = {"limits": {nvidia.GPU: str(gpus)}} if gpus else {}
    container = {
        "name": "main",
        "image": "pytorch/pytorch",
        "command": ["python3", "-c", TRAIN],
        "resources": resources,
    }
    pod = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [container]}}
    home = PodHome(root / "pods" / name)
    uuids = allocations.take([container]).get("main", [])
    network = settings.ranges.for_pod(f"10.244.0.{10 + gpus}", f"y{name}")
    home.write_plan({"sandboxed": True, "hostname": name, "tmpfs": [], "network": network, "devices": {"main": uuids}})
    home.etc.mkdir(parents=True)
    for file in ("hosts", "resolv.conf", "hostname"):
        (home.etc / file).write_text("127.0.0.1 localhost\n" if file == "hosts" else "")
    keeper = KeeperClient(root, {"namespaces": True, "network": Ranges().for_anchor()})
    await keeper.start_shim(home.path)
    parts = Parts(
        pod=pod,
        container=container,
        attempt=0,
        image=store.resolve(container["image"]),
        env=nvidia.environment(uuids),
        volumes={},
        home=home,
        settings=settings,
        sandboxed=True,
        devices=tuple(nvidia.nodes()) if uuids else (),
    )
    record.write(record.launch_path(str(home.path), "main", 0), build(parts))
    begun = time.time()
    await ShimClient(home.path).start("main", 0)
    for _ in range(2400):
        known = record.read(record.record_path(str(home.path), "main", 0)) or {}
        if known.get("state") == record.EXITED:
            break
        await asyncio.sleep(0.05)
    text = " | ".join(line.split(" ", 3)[3] for line in home.log("main", 0).read_text().splitlines())
    print(f"{name}: asked {gpus}, exit {known['exitCode']}, {time.time() - begun:.1f} s: {text}")


async def main() -> None:
    devices = nvidia.find()
    print(f"{platform.node()}: python {sys.version.split()[0]}, devices {devices}, labels {nvidia.labels(devices)}")
    root = Path(tempfile.mkdtemp(prefix="yard-gpu-"))
    (root / "pods").mkdir()
    store = ImageStore(root / "images", python.find())
    allocations = nvidia.Allocations(devices, [])
    try:
        await run_pod(root, "with-gpu", 1, store, allocations)
        await run_pod(root, "without-gpu", 0, store, allocations)
    finally:
        await stop_pods(root)


asyncio.run(main())
