"""The signals of a terminal, for processes that tests start and interrupt."""

from __future__ import annotations

import signal


def restore_terminal_signals() -> None:
    """Set the default actions of SIGINT and SIGHUP, which `&` in a script and nohup make all their children ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
