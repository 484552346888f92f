"""The type of a Kubernetes object: plain data, so that fields this version does not know survive a round trip."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
