"""Commands forked from a process that has imported the libraries, which saves each its seconds.

Only libraries are imported beforehand: every line of ``lm_experiments`` and of the script runs as
in a command that a user types, in a process with a session of its own. `tests/harness` has a test
that holds the two starts to each other.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARIES = (
    "torch",
    "lightning.pytorch",
    "torchmetrics",
    "hydra.main",
    "wandb",
    "tokenizers",
    "rich.live",
    "multiprocessing.forkserver",
)


class WarmStarts:
    """A process with the libraries loaded, which forks commands when asked.

    Args:
        command: how it is started, where that is not simply this file.
    """

    def __init__(self, command: Sequence[str] = (sys.executable, __file__)) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if command[0] != sys.executable else None,
            text=True,
        )

    def start(
        self, arguments: Sequence[str], folder: Path, output: Path, environment: Mapping[str, str]
    ) -> tuple[int, Callable[[], int | None]]:
        """Start a script with arguments; return its process id and how to ask for its exit code."""
        asked = {"folder": str(folder), "output": str(output), "environment": dict(environment)}
        pid = self._ask({**asked, "arguments": list(arguments)})
        ended: list[int] = []

        def poll() -> int | None:
            if not ended and (code := self._ask({"poll": pid})) is not None:
                ended.append(code)
            return ended[0] if ended else None

        return pid, poll

    def _ask(self, question: dict[str, Any]) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        assert ready, "the server does not answer"
        return json.loads(self.process.stdout.readline())


@cache
def warm_starts() -> WarmStarts:
    """Return the server, started once; it ends when this process does."""
    return WarmStarts()


def _serve() -> None:
    before = dict(os.environ)
    for name in LIBRARIES:
        __import__(name)
    # Variables that a library sets while it is imported; a command has them too.
    set_by_imports = {k: v for k, v in os.environ.items() if before.get(k) != v}
    for line in sys.stdin:
        question = json.loads(line)
        if "poll" in question:
            pid, status = os.waitpid(question["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif not (answer := os.fork()):
            question["environment"] = {**set_by_imports, **question["environment"]}
            _become(**question)
        print(json.dumps(answer), flush=True)


def _become(arguments: list[str], folder: str, output: str, environment: dict[str, str]) -> None:
    """Be the command, in a session of its own."""
    import runpy

    code = 0
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_CREAT), (2, os.O_WRONLY)):
            opened = os.open(output if number else os.devnull, flags | os.O_APPEND)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.clear()
        os.environ.update(environment)
        # As a start of Python does with PYTHONPATH, which this process was started without.
        first = [str(Path(arguments[0]).parent), *environment["PYTHONPATH"].split(os.pathsep)]
        sys.path[:] = [*first, *(path for path in sys.path[1:] if path not in first)]
        sys.argv = arguments
        if (hook := Path(folder, "hooks", "sitecustomize.py")).exists():
            exec(hook.read_text(), {"__name__": "hook"})
        _fork_the_fork_server()
        runpy.run_path(arguments[0], run_name="__main__")
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
        # A new interpreter has neither the script nor the package, nor what these set.
        sys.stdout, sys.stderr, sys.excepthook = sys.__stdout__, sys.__stderr__, sys.__excepthook__
        assert isinstance(sys.stdout, TextIOWrapper)
        sys.stdout.reconfigure(errors=sys.stdin.errors)
        for name in [name for name in sys.modules if name.startswith("lm_experiments")]:
            del sys.modules[name]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            exec(arguments[-1], {"__name__": "forkserver"})
        finally:
            os._exit(0)

    util.spawnv_passfds = spawn_or_fork


if __name__ == "__main__":
    _serve()
