"""Step 1 of a container's start: image and back-off. Remembers why a container did not start and when to retry."""

from __future__ import annotations

import time

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.core.pod.view import Waiting
from torchyard.node.context import NodeContext
from torchyard.node.images.model import Image, ImageError
from torchyard.node.pod import create_container
from torchyard.node.pod.environment import CreateContainerConfigError
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.shim import records, wire
from torchyard.node.shim.client import ShimRequestError
from torchyard.node.shim.socket_server import close_all
from torchyard.node.volumes.mounter import VolumeError

# A kubelet syncs a pod that cannot start every ten seconds, and backs off between two pulls of an image.
_RETRY_FIRST, _RETRY_LONGEST = 1.0, 10.0
_PULL_FIRST, _PULL_LONGEST = 10.0, 300.0
_IMAGE_CHECK_SECONDS = 5.0  # how often to check whether a missing image was built or loaded meanwhile
_NO_IMAGE = (messages.REASON_IMAGE_PULL, messages.REASON_IMAGE_PULL_BACK_OFF, messages.REASON_IMAGE_NEVER_PULL)


def _reason_of(error: Exception) -> str:
    if isinstance(error, ShimRequestError) and error.reply_code == wire.MOUNT_REFUSED:
        return messages.REASON_CREATE_CONFIG_ERROR
    return error.code if isinstance(error, YardError) else messages.REASON_CREATE_ERROR


class ContainerStarter:
    def __init__(self, context: NodeContext, sandbox: PodSandbox) -> None:
        self._context, self._sandbox = context, sandbox
        self._waiting: dict[str, Waiting] = {}
        self._not_before: dict[str, tuple[float, float]] = {}  # container → (next try, its delay)
        self._images: dict[str, Image] = {}

    def waiting(self, name: str) -> Waiting | None:
        """Why the container's last start failed."""
        return self._waiting.get(name)

    def image(self, name: str) -> Image | None:
        """The image that the container was last started from."""
        return self._images.get(name)

    def retry_at(self, name: str, now: float) -> float | None:
        """When to try a container again that did not start."""
        if name not in self._not_before:
            return None
        waiting = self._waiting.get(name)
        due = now + max(0.0, self._not_before[name][0] - time.monotonic())
        return min(due, now + _IMAGE_CHECK_SECONDS) if waiting and waiting.reason in _NO_IMAGE else due

    async def may_start(self, container: Object) -> bool:
        """Not before the back-off of a failed start is over, unless the image that was missing exists now."""
        name = container["name"]
        if name not in self._not_before or self._not_before[name][0] <= time.monotonic():
            return True
        waiting = self._waiting.get(name)
        if waiting is None or waiting.reason not in _NO_IMAGE:
            return False
        if waiting.reason == messages.REASON_IMAGE_PULL:
            self._back_off_pulling(container, waiting)
        return await self._sandbox.has_image(container["image"])

    async def start(self, container: Object, attempt: int) -> bool:
        """Whether its process runs now. After an error the container is due again at `retry_at`."""
        name = container["name"]
        try:
            image = await self._resolve_image(container)
            mounts = await create_container.create(self._context, self._sandbox, container, image, attempt)
            try:
                record = await self._sandbox.shim.start(name, attempt, mounts)
            finally:
                close_all(mounts)
        except (ImageError, CreateContainerConfigError, VolumeError, ShimRequestError, OSError) as error:
            self._start_failed(container, error)
            return False
        self._waiting.pop(name, None)
        self._not_before.pop(name, None)
        emit = self._sandbox.event
        emit(messages.REASON_CREATED, messages.created(name), container=name)
        if record["state"] == records.EXITED:
            message = messages.failed(record.get("message", ""))
            emit(messages.REASON_FAILED, message, container=name, kind="Warning")
            return False
        emit(messages.REASON_STARTED, messages.started(name), container=name)
        return True

    async def _resolve_image(self, container: Object) -> Image:
        name, image_name = container["name"], container["image"]
        try:
            image = await self._sandbox.image(image_name)
        except ImageError as error:
            if error.code != messages.REASON_IMAGE_PULL or container.get("imagePullPolicy") != "Never":
                raise
            message = messages.image_never_pulled(image_name)
            raise ImageError(message, code=messages.REASON_IMAGE_NEVER_PULL, hint=error.hint) from error
        self._images[name] = image
        self._sandbox.event(messages.REASON_PULLED, messages.image_present(image_name), container=name)
        return image

    def _start_failed(self, container: Object, error: Exception) -> None:
        name, image = container["name"], container["image"]
        reason = _reason_of(error)
        pulls = reason == messages.REASON_IMAGE_PULL
        first, longest = (_PULL_FIRST, _PULL_LONGEST) if pulls else (_RETRY_FIRST, _RETRY_LONGEST)
        before = self._not_before.get(name)
        delay = min(before[1] * 2, longest) if before else first
        self._not_before[name] = (time.monotonic() + delay, delay)
        self._waiting[name] = Waiting(reason, str(error))
        emit = self._sandbox.event
        if pulls:
            emit(messages.REASON_PULLING, messages.image_pulling(image), container=name)
            message = messages.image_pull_failed(image, error)
            emit(messages.REASON_FAILED, message, container=name, kind="Warning")
        elif reason == messages.REASON_IMAGE_NEVER_PULL:
            emit(reason, str(error), container=name, kind="Warning")
        elif reason == messages.REASON_INVALID_IMAGE_NAME:
            emit(messages.REASON_INSPECT_FAILED, str(error), container=name, kind="Warning")
        else:
            emit(messages.REASON_FAILED, messages.failed(error), container=name, kind="Warning")
            return
        emit(messages.REASON_FAILED, messages.failed(reason), container=name, kind="Warning")

    def _back_off_pulling(self, container: Object, waiting: Waiting) -> None:
        name, message = container["name"], messages.image_back_off(container["image"])
        reason = messages.REASON_IMAGE_PULL_BACK_OFF
        self._waiting[name] = Waiting(reason, f"{message}: {waiting.reason}: {waiting.message}")
        self._sandbox.event(messages.REASON_BACK_OFF, message, container=name)
        self._sandbox.event(messages.REASON_FAILED, messages.failed(reason), container=name, kind="Warning")
