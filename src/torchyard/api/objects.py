"""The type of a Kubernetes object: a plain dict, so that unknown fields survive a round trip."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
