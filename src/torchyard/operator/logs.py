"""The operator's log: one JSON object per line, with the id of the reconciliation."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from torchyard.controllers.loop import reconcile_id
from torchyard.kube.log_limit import limit_repeated_lines


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if current := reconcile_id.get():
            line["reconcileID"] = current
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def set_up() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    limit_repeated_lines()
