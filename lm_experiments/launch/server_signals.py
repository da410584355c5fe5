"""Imported by the fork server before all else: signals are for the trainings and their parent.

A scheduler sends SIGTERM to every process. Without its server, a parent cannot tell how a training
ended, and would not wait for the checkpoint that it is saving.
"""

from __future__ import annotations

import signal

from lm_experiments.training.signals import SIGNALS

for _number in SIGNALS:
    signal.signal(_number, signal.SIG_IGN)
