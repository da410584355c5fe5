"""Imported by the fork server before all else: it holds back the signals that end a program.

A scheduler sends SIGTERM to every process. Without its fork server, a parent cannot learn how a
training ended, and would not wait for the checkpoint that it is saving.
"""

from __future__ import annotations

import signal

from lm_experiments.training.signals import SIGNALS

# Whether nohup has started the program: then a closed terminal ends nothing.
NOHUP = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

_BEFORE = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def release_signals() -> None:
    """Let signals end a forked process, also those that have come since it was forked."""
    for number in SIGNALS:
        is_kept = NOHUP and number == signal.SIGHUP
        signal.signal(number, signal.SIG_IGN if is_kept else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, _BEFORE)
