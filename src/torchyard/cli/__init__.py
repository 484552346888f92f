"""The `yard` command line. It parses arguments, calls the layers below and prints; it decides nothing.

Modules in reading order:

- `main`: the commands, and how errors are printed
- `options`: options that several commands share
- `target`: which cluster a command talks to
- `plane`: `yard up`, `down`, `status`, `kubeconfig`
- `store`: `yard backup`, `restore`
- `run`, `run_options`, `run_script`, `workspace`, `run_session`, `apply`, `follow`, `screen`: `yard run`, in the order
  of its steps
- `jobs`, `job_table`: `yard ps`, `why`, `events`, `stop`, `resume`, `delete`
- `logs`, `log_selection`, `follow_logs`, `log_stream`: `yard logs`
- `images`: `yard image`
- `queue`: `yard queue`
- `operator`: `yard operator`, `install`, `uninstall`
- `doctor`: `yard doctor`
- `elastic`: `yard elastic`, the training runtime's own command line
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:  # scripts ask for it often: it loads nothing
        from torchyard import __version__

        sys.stdout.write(f"yard {__version__}\n")
        return
    from torchyard import bytecode

    bytecode.enable()
    try:
        from torchyard.cli.main import main as run

        run()
    finally:
        bytecode.save()
