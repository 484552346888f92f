"""Starts containers for a worker, and remembers of those that would not start why, and when to try again."""

from __future__ import annotations

import time

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.pod.view import Waiting
from torchyard.node.context import NodeContext
from torchyard.node.images.model import Image, ImageError
from torchyard.node.pod import create_container
from torchyard.node.pod.environment import CreateContainerConfigError
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.shim.client import ShimRequestError
from torchyard.node.volumes.mounter import VolumeError

# A kubelet looks at a pod that cannot start every ten seconds, and lets longer and longer pass between two pulls.
_RETRY_FIRST, _RETRY_LONGEST = 1.0, 10.0
_PULL_FIRST, _PULL_LONGEST = 10.0, 300.0
_LOOK_SECONDS = 5.0  # between two looks whether an image that could not be pulled has come in another way
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")


class ContainerStarter:
    def __init__(self, context: NodeContext, sandbox: PodSandbox) -> None:
        self._context, self._sandbox = context, sandbox
        self._waiting: dict[str, Waiting] = {}
        self._not_before: dict[str, tuple[float, float]] = {}  # container → (next try, its delay)
        self._images: dict[str, Image] = {}

    def waiting(self, name: str) -> Waiting | None:
        """What kept the container's last start from happening."""
        return self._waiting.get(name)

    def image(self, name: str) -> Image | None:
        """What the container was last started from."""
        return self._images.get(name)

    def next_look(self, name: str, now: float) -> float | None:
        """When to come back to a container that would not start."""
        if name not in self._not_before:
            return None
        waiting, due = self._waiting.get(name), self._not_before[name][0]
        return min(due, now + _LOOK_SECONDS) if waiting and waiting.reason in _NO_IMAGE else due

    async def may_try(self, container: Object, now: float) -> bool:
        """Not while it is too early after a try that failed, unless the image it lacked is there now."""
        name = container["name"]
        if name not in self._not_before or self._not_before[name][0] <= now:
            return True
        waiting = self._waiting.get(name)
        if waiting is None or waiting.reason not in _NO_IMAGE:
            return False
        if waiting.reason == "ErrImagePull":
            self._back_off_pulling(container, waiting)
        return await self._sandbox.has_image(container["image"])

    async def start(self, container: Object, attempt: int) -> bool:
        """Whether its process runs now. One that could not even be asked for is due again at `next_look`."""
        name = container["name"]
        try:
            image = await self._resolve(container)
            started = await create_container.start(self._context, self._sandbox, container, image, attempt)
        except (ImageError, CreateContainerConfigError, VolumeError, ShimRequestError, OSError) as failed:
            self._could_not(container, failed)
            return False
        self._waiting.pop(name, None)
        self._not_before.pop(name, None)
        tell = self._sandbox.event
        tell("Created", f"Created container: {name}", container=name)
        if started["state"] == "exited":
            tell("Failed", f"Error: {started.get('message', '')}", container=name, kind="Warning")
            return False
        tell("Started", f"Started container {name}", container=name)
        return True

    async def _resolve(self, container: Object) -> Image:
        name, wanted = container["name"], container["image"]
        try:
            image = await self._sandbox.image(wanted)
        except ImageError as failed:
            if failed.code != "ErrImagePull" or container.get("imagePullPolicy") != "Never":
                raise
            said = f'Container image "{wanted}" is not present with pull policy of Never'
            raise ImageError(said, code="ErrImageNeverPull", hint=failed.hint) from failed
        self._images[name] = image
        self._sandbox.event("Pulled", f'Container image "{wanted}" already present on machine', container=name)
        return image

    def _could_not(self, container: Object, failed: Exception) -> None:
        name, image = container["name"], container["image"]
        code = failed.code if isinstance(failed, YardError) else "CreateContainerError"
        pulls = code == "ErrImagePull"
        first, longest = (_PULL_FIRST, _PULL_LONGEST) if pulls else (_RETRY_FIRST, _RETRY_LONGEST)
        before = self._not_before.get(name)
        delay = min(before[1] * 2, longest) if before else first
        self._not_before[name] = (time.time() + delay, delay)
        self._waiting[name] = Waiting(code, str(failed))
        tell = self._sandbox.event
        if code == "ErrImagePull":
            tell("Pulling", f'Pulling image "{image}"', container=name)
            tell("Failed", f'Failed to pull image "{image}": {failed}', container=name, kind="Warning")
        elif code == "ErrImageNeverPull":
            tell(code, str(failed), container=name, kind="Warning")
        elif code == "InvalidImageName":
            tell("InspectFailed", str(failed), container=name, kind="Warning")
        else:
            tell("Failed", f"Error: {failed}", container=name, kind="Warning")
            return
        tell("Failed", f"Error: {code}", container=name, kind="Warning")

    def _back_off_pulling(self, container: Object, waiting: Waiting) -> None:
        name, said = container["name"], f'Back-off pulling image "{container["image"]}"'
        self._waiting[name] = Waiting("ImagePullBackOff", f"{said}: {waiting.reason}: {waiting.message}")
        self._sandbox.event("BackOff", said, container=name)
        self._sandbox.event("Failed", "Error: ImagePullBackOff", container=name, kind="Warning")
