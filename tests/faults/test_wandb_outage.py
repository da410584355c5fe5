"""W&B that is away, broken or slow: the training ends well, and nothing local is missing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.processes import MARK, Place, slow, time_limit, until
from harness.runs import result
from wandb_stub import API_KEY, serving

from lm_experiments.launch.fork import start_server
from lm_experiments.training.wandb import client as wandb_client
from lm_experiments.training.wandb.axes import X_AXIS
from lm_experiments.training.wandb.transaction_log import logged_keys

# In a run's process it waits less long than people would, and breaks what a test breaks. The
# command that starts the run loads it too, in the test's process, which stays as it is.
FAULTY = '''
import multiprocessing, os, resource, signal, time
from pathlib import Path
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm
from lm_experiments.training.wandb import client as wandb_client, logger as wandb_logger

def kill_core():
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        if "wandb-core" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), signal.SIGKILL)
            time.sleep(0.2)

@register("norm", "raising", NormOptions)
class Raising(RMSNorm):
    """Raises in its first forward pass."""
    def forward(self, x):
        raise RuntimeError("this norm is broken")

@register("norm", "killing", NormOptions)
class Killing(RMSNorm):
    """Kills the W&B client's service once."""
    calls = 0
    def forward(self, x):
        Killing.calls += 1
        if Killing.calls == 20:
            kill_core()
        return super().forward(x)

IN_A_RUN = multiprocessing.parent_process() is not None
if IN_A_RUN:
    wandb_client.SETTINGS["finish_timeout"] = 3.0

if IN_A_RUN and os.environ.get("SMALL_FILES"):
    start = wandb_logger.start_run
    def small_start(*arguments):
        """Let the files of the client's service be no larger than a page."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            return start(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    wandb_logger.start_run = small_start
'''
STEPS = 12
# A server that is slow takes longer to answer than this.
BOUNDED = 80
SWEEP = (
    "-m",
    "logger=wandb",
    "logger.init_timeout=2",
    "code_paths=[faulty.py]",
    f"trainer.max_steps={STEPS}",
)


@pytest.fixture(autouse=True)
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A client without settings or credentials of its own, which leaves no process behind."""
    for key in [key for key in os.environ if key.startswith("WANDB")]:
        monkeypatch.delenv(key)
    for key in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(key, str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    # It outlives the test, and must not be taken for a process that the test has left.
    start_server()
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    with time_limit(240):
        yield
    place = Place(tmp_path / "accounts", ())
    place.mark = mark
    until(lambda: not place.living(), 30, "the client's processes to end")


@pytest.fixture
def sweep(train: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Train a sweep that is mirrored in W&B, with components that break things."""
    (tmp_path / "faulty.py").write_text(FAULTY)

    def call(*arguments: str) -> Any:
        settings = dict(wandb_client.SETTINGS)
        answer = train(*SWEEP, *arguments)
        assert settings == wandb_client.SETTINGS, "the test's own client waits less long, too"
        return answer

    return call


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", API_KEY)


def runs(name: str) -> list[Path]:
    return sorted(path.parent for path in Path("runs", name).glob("*/config.yaml"))


def warnings(run: Path) -> list[str]:
    lines = (run / "train.log").read_text().splitlines()
    return [line for line in lines if " WARNING " in line and "lm_experiments" in line]


def assert_complete(run: Path) -> None:
    """Assert that all is there that W&B would have shown."""
    assert result(run)["status"] == "done"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    assert [row["step"] for row in rows if "train/loss" in row] == [*range(1, STEPS + 1)]
    assert rows[-1]["val/loss"] == result(run)["val_loss"]


def sync_command(out: str) -> str:
    [command] = re.findall(r"^  (wandb sync .*)$", out, re.MULTILINE)
    return str(command)


def type_sync(command: str) -> subprocess.CompletedProcess[str]:
    """Type the command that the end of a sweep proposed."""
    client = f"{shlex.quote(sys.executable)} -m wandb"
    return subprocess.run(
        command.replace("wandb", client, 1),
        shell=True,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("mood", ["500", *map(slow, ("cut", "delay", "nobody there")), "no key"])
def test_a_server_that_cannot_be_reached_costs_a_bounded_wait_and_one_warning(
    mood: str, sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    with serving(mood) as server:
        url = "http://127.0.0.1:9" if mood == "nobody there" else server.url
        monkeypatch.setenv("WANDB_BASE_URL", url)
        if mood != "no key":
            monkeypatch.setenv("WANDB_API_KEY", API_KEY)
        answer = sweep("seed=0", "name=away", "logger.mode=online")
    assert answer.code == 0, answer.out + answer.err
    assert time.monotonic() - begun < BOUNDED
    [run] = runs("away")
    assert_complete(run)
    assert result(run)["wandb"] == "offline"
    assert len(warnings(run)) == 1, warnings(run)
    assert "this run's W&B log is offline" in warnings(run)[0]
    assert "W&B: 1 run is kept offline. To upload:" in answer.out
    assert "wandb:" not in answer.err


@pytest.mark.usefixtures("keyed")
@pytest.mark.parametrize("mood", [*map(slow, ("500", "cut", "delay"))])
def test_a_server_that_goes_away_meanwhile_gets_the_rest_afterwards(
    mood: str, sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    with serving(turns=mood) as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        answer = sweep("seed=0", "name=gone")
        assert answer.code == 0, answer.out + answer.err
        assert time.monotonic() - begun < BOUNDED
        [run] = runs("gone")
        assert_complete(run)
        assert result(run)["wandb"] == "online"
        assert len(warnings(run)) == 1, warnings(run)
        assert "metrics.jsonl is complete" in warnings(run)[0]

        server.turns, server.mood = None, "well"
        synced = type_sync(sync_command(answer.out))
        assert synced.returncode == 0, synced.stdout + synced.stderr
        rows = server.rows[(run / "wandb_id").read_text().split()[0]]
    steps = {row[X_AXIS] for row in rows if "train/loss" in row}
    assert steps == set(range(1, STEPS + 1))


@pytest.mark.usefixtures("keyed")
def test_a_run_that_raises_has_failed_in_wandb_too(
    sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        answer = sweep("norm=raising,rmsnorm", "name=raised")
    assert answer.code == 1
    codes = {
        result(run)["status"]: server.exit_codes[(run / "wandb_id").read_text().split()[0]]
        for run in runs("raised")
    }
    assert codes == {"failed": 1, "done": 0}
    assert "wandb sync" not in answer.out


@pytest.mark.parametrize("mode", [*map(slow, ("offline", "online"))])
def test_a_service_that_is_killed_meanwhile_is_one_warning(
    mode: str, sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", API_KEY)
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        answer = sweep("norm=killing,rmsnorm", "name=killed", f"logger.mode={mode}")
    assert answer.code == 0, answer.out + answer.err
    for run in runs("killed"):
        assert_complete(run)
        assert ["W&B stopped working" in text for text in warnings(run)] == [True] * (
            "killing" in run.name
        )
    assert f"runs/killed/{'*' if mode == 'offline' else 'killing'}" in sync_command(answer.out)


@pytest.mark.slow
def test_a_disk_that_takes_nothing_more_of_wandb_ends_only_the_mirroring(
    sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMALL_FILES", "1")
    answer = sweep("seed=0", "name=small", "logger.mode=offline")
    assert answer.code == 0, answer.out + answer.err
    [run] = runs("small")
    assert_complete(run)
    assert max(path.stat().st_size for path in run.glob("wandb/*/*.wandb")) <= 4096
    assert len(warnings(run)) <= 1


@pytest.mark.slow
@pytest.mark.usefixtures("keyed")
def test_a_transaction_log_that_is_cut_holds_up_no_other(
    sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = sweep("seed=0,1,2", "name=cut", "logger.mode=offline")
    assert answer.code == 0, answer.err
    [path] = runs("cut")[1].glob("wandb/offline-run-*/*.wandb")
    path.write_bytes(path.read_bytes()[:-100])
    assert logged_keys(path)
    for run in runs("cut"):
        assert_complete(run)
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        synced = type_sync(sync_command(answer.out))
    said = synced.stdout + synced.stderr
    ids = [(run / "wandb_id").read_text().split()[0] for run in runs("cut")]
    assert set(ids) <= set(server.rows), said
    for number in (0, 2):
        steps = {row[X_AXIS] for row in server.rows[ids[number]] if "train/loss" in row}
        assert steps == set(range(1, STEPS + 1)), said
