"""A process that forks trainings with the imports already loaded, which saves each its seconds.

The commands are real processes all the same, each in a session of its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Warm:
    """A process with the heavy imports loaded, which forks commands when asked."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def ask(self, question: dict[str, Any]) -> Any:
        """Ask for a start, or for how one ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        assert ready, "the server does not answer"
        return json.loads(self.process.stdout.readline())


@cache
def warm() -> Warm:
    """Return the server, started once; it ends when this process does."""
    return Warm()


def _serve() -> None:
    import wandb  # noqa: F401

    import lm_experiments.cli.train
    import lm_experiments.training.fit  # noqa: F401

    for line in sys.stdin:
        question = json.loads(line)
        if "poll" in question:
            pid, status = os.waitpid(question["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif not (answer := os.fork()):
            _become(**question)
        print(json.dumps(answer), flush=True)


def _become(
    script: str, words: list[str], folder: str, output: str, environment: dict[str, str]
) -> None:
    """Be the command, in a session of its own."""
    import runpy

    code = 0
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_CREAT), (2, os.O_WRONLY)):
            os.dup2(os.open(output if number else os.devnull, flags | os.O_APPEND), number)
        os.environ.clear()
        os.environ.update(environment)
        sys.path.insert(0, folder + "/hooks")
        sys.argv = [script, *words]
        exec(Path(folder, "hooks", "sitecustomize.py").read_text(), {"__name__": "hook"})
        _fork_the_fork_server()
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        code = int(stop.code or 0)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork_the_fork_server() -> None:
    """Let a sweep's fork server be forked as well, which saves it the imports of a new process."""
    from multiprocessing import util

    spawn = util.spawnv_passfds

    def spawn_or_fork(path: bytes, arguments: list[Any], descriptors: list[int]) -> int:
        if "forkserver" not in str(arguments[-1]):
            return spawn(path, arguments, descriptors)
        if pid := os.fork():
            return pid
        # It ends when its parent's end of a pipe is closed, so it must not hold that end itself.
        kept = sorted({0, 1, 2, *descriptors})
        for low, high in zip(kept, [*kept[1:], 4096], strict=True):
            os.closerange(low + 1, high)
        try:
            exec(arguments[-1], {"__name__": "forkserver"})
        finally:
            os._exit(0)

    util.spawnv_passfds = spawn_or_fork


if __name__ == "__main__":
    _serve()
