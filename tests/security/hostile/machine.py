"""What only a plane's own images have: the programs of the machine, mounted into the container."""

from __future__ import annotations

import contextlib
import os

from tests.security.hostile import kernel
from tests.security.hostile.registry import Verdict, case


@case
def programs_written_after_a_remount() -> Verdict:
    """The mounts below the machine's directories that can be written once they are remounted."""
    with open("/proc/self/mountinfo") as lines:
        points = [line.split()[4] for line in lines]
    written = []
    for point in points:
        if not point.startswith(
            ("/usr", "/opt", "/bin", "/lib", "/sbin", "/etc/ssl", "/etc/passwd", "/etc/alternatives")
        ):
            continue
        for flags in (kernel.MS_REMOUNT | kernel.MS_BIND, kernel.MS_REMOUNT):
            with contextlib.suppress(OSError):
                kernel.mount(b"none", point.encode(), None, flags)
        with contextlib.suppress(OSError):
            if os.path.isdir(point):
                path = f"{point}/escape-{os.getpid()}"
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
                os.unlink(path)
            else:
                os.chmod(point, os.stat(point).st_mode & 0o7777)
            written.append(point)
    return written
