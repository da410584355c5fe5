"""Imported by the fork server before all else: it ignores the signals that ask a program to end.

A scheduler sends SIGTERM to every process. Without its fork server, a parent cannot learn how a
training ended, and would not wait for the checkpoint that it is saving.
"""

from __future__ import annotations

import signal

from lm_experiments.training.signals import SIGNALS

# Whether nohup has started the program: then a closed terminal ends nothing.
NOHUP = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

for _number in SIGNALS:
    signal.signal(_number, signal.SIG_IGN)
