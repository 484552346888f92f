"""One plane per state directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.yard.lock import AlreadyRunning, PlaneProcess, StateLock, running

HOLD = (
    "import sys, time; from pathlib import Path; from torchyard.yard.lock import PlaneProcess, StateLock;"
    "lock = StateLock(Path(sys.argv[1])); lock.acquire();"
    "import os; lock.write(PlaneProcess(os.getpid(), 'https://127.0.0.1:1', 'now')); "
    "print('held', flush=True); time.sleep(60)"
)


def test_a_second_plane_reports_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, env=env) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        try:
            assert running(path) == PlaneProcess(other.pid, "https://127.0.0.1:1", "now")
            with pytest.raises(AlreadyRunning, match=rf"https://127.0.0.1:1 \(process {other.pid}\)") as caught:
                StateLock(path).acquire()
            assert "yard down" in caught.value.hint
        finally:
            other.send_signal(signal.SIGKILL)
            other.wait()
    assert running(path) is None
    mine = StateLock(path)
    mine.acquire()
    assert running(path) == PlaneProcess(os.getpid())
    mine.release()
    assert running(path) is None


def test_an_unreadable_lock_is_an_error_and_not_a_stopped_plane(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch(mode=0)
    code = (
        "import os, sys; from pathlib import Path; from torchyard.api.errors import YardError;"
        "from torchyard.yard.lock import running; os.geteuid() or os.setuid(65534)\n"
        "try: running(Path(sys.argv[1]))\n"
        "except YardError as error: print(error.message)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == f"cannot determine whether a plane runs on {tmp_path}: Permission denied\n"
