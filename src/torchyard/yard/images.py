"""The plane's image store."""

from __future__ import annotations

from torchyard.node.images.store import ImageStore
from torchyard.yard.node import node_settings
from torchyard.yard.python_choice import find_chosen
from torchyard.yard.settings import PlaneSettings


def image_store(settings: PlaneSettings) -> ImageStore:
    """The image store of a plane, running or not; pods and `yard image` use the same."""
    node = node_settings(settings, 0)
    return ImageStore(node.images, find_chosen(settings))
