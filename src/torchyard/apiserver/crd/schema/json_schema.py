"""The type of an OpenAPI v3 schema as it is in a CRD, not compiled."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
