"""The limit of open files of the plane's process: raised as far as the system allows. Its pods keep the old one."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable
from functools import partial

log = logging.getLogger(__name__)

# The shims' zygote, and so every pod, gets back the soft limit that it finds here.
SOFT_LIMIT_VARIABLE = "TORCHYARD_SOFT_NOFILE"


def raise_open_file_limit() -> Callable[[], None]:
    """Every connection needs a file descriptor, and 1,024 of them, a common soft limit, are few.

    Returns a function that logs the outcome: the first line of a plane that cannot start is its error.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.environ.setdefault(SOFT_LIMIT_VARIABLE, str(soft))
    if soft == hard:
        return lambda: None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        return partial(log.warning, "limit of open files cannot be raised: soft=%d hard=%d error=%s", soft, hard, error)
    return partial(log.info, "limit of open files raised: soft=%d hard=%d", soft, hard)


def open_file_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
