"""The `yard` command line. It parses arguments, calls the layers below and prints; it decides nothing.

What the SDK does as well is in `torchyard.jobs`.

Modules in reading order:

- `main`: the commands, and how errors are printed
- `options`, `option_groups`, `output`, `printable`: what several commands share
- `target`: which cluster a command talks to
- `job_arguments`, `completion`: how commands name a job, and its name for the completion of shells
- `plane`: `yard up`, `down`, `status`, `kubeconfig`
- `store`: `yard backup`, `restore`
- `run`, `run_options`, `script_options`, `run_session`, `confirm`, `apply`, `follow`, `screen`, `notify`: `yard run`,
  in the order of its steps
- `jobs`, `job_table`: `yard ps`, `why`, `events`, `stop`, `resume`, `delete`
- `history`, `rerun`, `compare`, `export`: jobs that have ended, again, side by side, and for TensorBoard
- `smoke`, `step_screen`, `sweep`, `top`: a short run, a run for every combination of options, usage
- `processes`, `copy`, `replica`, `terminal`: `yard exec`, `attach`, `port-forward`, `cp`
- `logs`: `yard logs`
- `tui`: `yard tui`
- `console`: `yard console`
- `images`: `yard image`
- `queue`: `yard queue`
- `operator`: `yard operator`, `install`, `uninstall`
- `doctor`: `yard doctor`
- `mcp`: `yard mcp`, for coding agents
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
    try:
        from torchyard import bytecode

        bytecode.enable()
        try:
            from torchyard.cli.main import main as run

            run()
        finally:
            bytecode.save()
    except KeyboardInterrupt:  # also while modules load: the exit code of shells, and no traceback
        sys.exit(130)
