"""Makes a communication hook for those who keep DistributedDataParallel."""

from __future__ import annotations

import atexit
from typing import Any

import torch

from sparfuse import _core
from sparfuse.torch import _staging, _start


class HookState:
    """The state that the hook keeps between buckets."""

    def __init__(self, method: Any, model: Any, group: Any, options: dict[str, Any]) -> None:
        self.method = method
        self.group = group
        self.options = options
        self.rank: Any = None
        self.places: dict[int, int] = {}
        self._waiting: list[tuple[Any, Any]] = []
        self._given: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self._staged: list[torch.Tensor] = []
        if model is not None:
            inner = model.module if hasattr(model, "register_comm_hook") else model
            self._start(_start.trained(inner.named_parameters()))

    def _start(self, layout: list[tuple[str, torch.nn.Parameter]]) -> None:
        made = _start.start_rank(self.method, layout, self.group, self.options)
        self.rank = made._ranks
        self.places = {id(parameter): place for place, (_, parameter) in enumerate(layout)}
        atexit.register(self.close)

    def close(self) -> None:
        if self.rank is not None:
            self.rank.close()
        atexit.unregister(self.close)

    def take(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        pairs = list(zip(bucket.parameters(), bucket.gradients()))
        if self.rank is not None:
            if not self._waiting:
                self.rank.begin(1.0, self.rank.keeps_something)
            self._announce(pairs)
        self._given += pairs
        self._waiting.append((future, bucket.buffer()))
        if bucket.is_last():
            self._finish()
        return future

    def _announce(self, pairs: list[tuple[torch.nn.Parameter, torch.Tensor]]) -> None:
        for parameter, grad in pairs:
            place = self.places.get(id(parameter))
            if place is None:
                raise _core.ConfigError(
                    f"DDP gives a parameter of shape {tuple(parameter.shape)} that the hook's model "
                    "lacks; give sf.comm_hook the model that DDP wraps"
                )
            plain = _staging.plain(grad)
            self._staged.append(plain)
            self.rank.announce(place, plain.data_ptr(), plain.numel())

    def _finish(self) -> None:
        if self.rank is None:  # only the first step shows the layout
            names = [(f"parameter {i}", p) for i, (p, _) in enumerate(self._given)]
            self._start(names)
            self.rank.begin(1.0, self.rank.keeps_something)
            self._announce(self._given)
        try:
            self.rank.end_backward("")
            kind, rank, text = self.rank.finish()
            if kind == "nonfinite":
                raise _core.NumericError(f"rank {rank}: {text}")
            if kind == "refused":
                raise _core.ConfigError(f"rank {rank}: {text}")
            places = [(self.places[id(parameter)], grad) for parameter, grad in self._given]
            _staging.write_averages(self.rank, places)
            for future, buffer in self._waiting:
                future.set_result(buffer)
        finally:
            self._waiting.clear()
            self._given.clear()
            self._staged.clear()


def _hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations, as objects
    return state.take(bucket)


def comm_hook(
    method: Any,
    model: torch.nn.Module | None = None,
    *,
    density: float | None = None,
    group: Any = None,
    **options: Any,
) -> tuple[HookState, Any]:
    """A hook for DistributedDataParallel: ddp.register_comm_hook(*sf.comm_hook("safusion", ddp)).

    DDP's buckets only announce gradients that are ready. The method decides the units and their
    order, and keeps its state by parameter. Without `model`, the layout is taken from the first
    step, and parameters are called "parameter 0", ...
    """
    given = {"density": density, **options}
    return HookState(method, model, group, given), _hook
