"""A sandboxed pod with `nvidia.com/gpu: 1` trains on the GPU; one without sees none. Needs a GPU and torch.

`python -m bench.pods.gpu` starts a plane of its own and prints one line per pod.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from torchyard.api.gvr import NODES, PODS
from torchyard.api.objects import Object
from torchyard.kube.client import Client
from torchyard.node.shutdown import stop_pods
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

GPU = "nvidia.com/gpu"
TRAIN = """
import os, time, torch
print("visible", os.environ["CUDA_VISIBLE_DEVICES"] or "none", "cuda", torch.cuda.is_available())
print("device files", sorted(one for one in os.listdir("/dev") if one.startswith("nvidia")))
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


async def start(client: Client, name: str, gpus: int, command: list[str]) -> None:
    container = {"name": "main", "image": "pytorch/pytorch", "command": command}
    if gpus:
        container["resources"] = {"limits": {GPU: str(gpus)}}
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")


async def until(client: Client, name: str, *phases: str) -> Object:
    async for _, seen in client.watch(PODS, "default", initial=True, fields=f"metadata.name={name}"):
        if (seen.get("status") or {}).get("phase") in phases:
            return seen
    raise RuntimeError(f"{name} was never {' or '.join(phases)}")


async def train(client: Client, name: str, gpus: int) -> None:
    begun = time.time()
    await start(client, name, gpus, ["python3", "-c", TRAIN])
    pod = await until(client, name, "Succeeded", "Failed")
    text = b"".join([piece async for piece in client.logs(PODS, name, "default")]).decode()
    code = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    output = " | ".join(text.splitlines())
    print(f"{name}: asked for {gpus}, exit {code}, {time.time() - begun:.1f} s: {output}", flush=True)


async def wait_in_line(client: Client, gpus: int) -> None:
    """All GPUs are taken: one pod more waits, and says for what."""
    await start(client, "holder", gpus, ["sleep", "1000"])
    await until(client, "holder", "Running")
    await start(client, "one-more", 1, ["true"])
    async for _, seen in client.watch(PODS, "default", initial=True, fields="metadata.name=one-more"):
        conditions = (seen.get("status") or {}).get("conditions") or ()
        message = next(
            (condition["message"] for condition in conditions if condition.get("reason") == "Unschedulable"), ""
        )
        if message:
            print(f"one-more: {message}", flush=True)
            break
    await client.delete(PODS, "holder", "default", grace=0)
    ended = await until(client, "one-more", "Succeeded", "Failed")
    print(f"one-more: {ended['status']['phase']} once the other was deleted", flush=True)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="yard-gpu-") as state:
        try:
            async with Plane(PlaneSettings(state=Path(state), port=0, node=True, node_name="here")) as plane:
                assert plane.agent
                await plane.agent.ready.wait()
                client = plane.client("bench")
                node = await client.get(NODES, "here")
                shown = {
                    key: item for key, item in node["metadata"]["labels"].items() if "nvidia" in key or "yard" in key
                }
                gpus = int(node["status"]["capacity"].get(GPU, 0))
                print(f"user {os.getuid()}, {gpus} GPU, labels {shown}", flush=True)
                await train(client, "with-gpu", 1)
                await train(client, "without-gpu", 0)
                await wait_in_line(client, gpus)
        finally:
            await stop_pods(Path(state) / "node")


if __name__ == "__main__":
    asyncio.run(main())
