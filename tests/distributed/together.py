"""A function called in several processes that know each other through gloo."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from lm_experiments.launch.fork import start_server
from lm_experiments.launch.processes import open_store, rank_variables


def together(function: Callable[..., Any], size: int, *arguments: Any) -> list[Any]:
    """Return what the function returned in each process; one that raises fails the test."""
    start_server()
    context = multiprocessing.get_context("forkserver")
    store = open_store()
    lines, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        variables = rank_variables(rank, size, store)
        process = context.Process(
            target=_call, args=(function, arguments, variables, theirs), daemon=True
        )
        process.start()
        theirs.close()
        lines.append(ours)
        processes.append(process)
    try:
        answers = [line.recv() if line.poll(60) else ("error", "no answer") for line in lines]
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert all(kind == "value" for kind, _ in answers), answers
    return [value for _, value in answers]


def _call(
    function: Callable[..., Any], arguments: Any, variables: dict[str, str], line: Connection
) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)
    try:
        line.send(("value", function(*arguments)))
    except BaseException:
        line.send(("error", traceback.format_exc()))
