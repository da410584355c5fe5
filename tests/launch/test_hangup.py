"""A closed terminal ends a training as SIGTERM does, under nohup not at all; none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lm_experiments.training.signals import StopSignals

CHILD = """
import os, signal
from lm_experiments.launch import server_signals, fork
# It has no parent to watch.
fork._exit_with_parent = lambda: None
if os.environ.get("EARLY"):
    os.kill(os.getpid(), signal.SIGTERM)
fork.set_up_child(dict(os.environ), [])
print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, signal.getsignal(signal.SIGTERM).name)
"""


@pytest.fixture(autouse=True)
def handler_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_hangup_asks_for_an_end() -> None:
    signal.signal(signal.SIGHUP, lambda *_: None)
    with pytest.raises(SystemExit) as caught, StopSignals():
        os.kill(os.getpid(), signal.SIGHUP)
    assert caught.value.code == 129


def test_under_nohup_a_hangup_ends_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
    assert stop.number is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("ignored", [False, True])
def test_a_process_that_is_forked_for_a_run_is_told_of_nohup(ignored: bool) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert done.stdout == f"{ignored} SIG_DFL\n"


def test_a_signal_that_comes_while_a_process_is_forked_is_not_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        capture_output=True,
        text=True,
        env={**os.environ, "EARLY": "1"},
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")
