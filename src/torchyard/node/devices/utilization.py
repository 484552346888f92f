"""How busy GPUs are, by UUID, from the vendor's library if it is installed, else from nvidia-smi."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

_QUERY = ["--query-gpu=uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The share of the time in which a kernel ran, from 0 to 1, and the memory in use. None: the driver does not say.

    It does not for MIG slices.
    """

    busy: float | None
    memory: int | None


class UtilizationReader:
    """Reads the use of devices. The library stays loaded: to load it can take seconds."""

    def __init__(self) -> None:
        self._library: Any = None
        self._has_library: bool | None = None  # None: not tried yet

    def read(self, uuids: Iterable[str]) -> dict[str, DeviceUse]:
        """The use of these devices; those that cannot be read are left out."""
        wanted = set(uuids)
        if not wanted:
            return {}
        if self._has_library is None:
            self._library = _load_library()
            self._has_library = self._library is not None
        use = self._read_library(wanted) if self._has_library else _read_program()
        return {uuid: use[uuid] for uuid in wanted & use.keys()}

    def _read_library(self, uuids: set[str]) -> dict[str, DeviceUse]:
        library, use = self._library, {}
        for uuid in uuids:
            try:
                handle = library.nvmlDeviceGetHandleByUUID(uuid)
            except library.NVMLError as error:
                log.debug("GPU not found: uuid=%s error=%r", uuid, str(error))
                continue
            use[uuid] = DeviceUse(_busy(library, handle), _memory(library, handle))
        return use


def _load_library() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _busy(library: Any, handle: Any) -> float | None:
    try:
        return int(library.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    except library.NVMLError:
        return None


def _memory(library: Any, handle: Any) -> int | None:
    # The second version leaves out what the driver has reserved, as nvidia-smi does.
    version = [library.nvmlMemory_v2] if hasattr(library, "nvmlMemory_v2") else []
    try:
        return int(library.nvmlDeviceGetMemoryInfo(handle, *version).used)
    except library.NVMLError:
        return None


def _read_program() -> dict[str, DeviceUse]:
    program = shutil.which("nvidia-smi")
    if not program:
        return {}
    try:
        result = subprocess.run(
            [program, *_QUERY], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("the use of GPUs is not read: error=%r", str(error))
        return {}
    rows = [[word.strip() for word in line.split(",")] for line in result.stdout.splitlines()]
    return {row[0]: DeviceUse(_percent(row[1]), _mebibytes(row[2])) for row in rows if len(row) == 3}


def _percent(text: str) -> float | None:
    return int(text) / 100 if text.isdigit() else None  # [N/A], [Not Supported]


def _mebibytes(text: str) -> int | None:
    return int(text) << 20 if text.isdigit() else None
