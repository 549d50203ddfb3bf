"""Holds the names of torch that are not public, in one place: tests try them on each version."""

from __future__ import annotations

import sys
from typing import Any, Callable

import torch

_engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]


def current_task() -> int:
    """The number of the backward pass that this thread runs; a nested pass has its own number."""
    return torch._C._current_graph_task_id()


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Calls `call` before backward() returns, on the thread of backward(), which passes on its
    errors. Works only inside a backward pass. The pass owns `call`, and drops it if the pass fails."""
    _engine.queue_callback(call)


def after_backward(error: BaseException) -> None:
    """Raises the error from this backward pass after the ends that are queued until its end."""

    def throw() -> None:
        raise error

    at_end_of_backward(lambda: at_end_of_backward(throw))


def nesting() -> int:
    """The number of backward passes of this thread that are nested in one another."""
    depth = 0
    frame: Any = sys._getframe()
    while frame is not None:
        depth += frame.f_code.co_name == "_engine_run_backward"
        frame = frame.f_back
    return depth


def ddp_around() -> Any:
    """The DistributedDataParallel whose forward pass runs, or None."""
    return getattr(torch.nn.parallel.DistributedDataParallel, "_active_ddp_module", None)


def is_compiled() -> bool:
    """Whether compiled autograd runs backward passes; it calls no callbacks at their end."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    # The first is off while the compiled pass runs, and calls the hooks.
    flags = ("compiled_autograd_enabled", "in_compiled_autograd_region")
    return any(getattr(compiled, flag, False) for flag in flags)
