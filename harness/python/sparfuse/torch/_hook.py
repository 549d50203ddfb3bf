"""Makes a communication hook for those who keep DistributedDataParallel."""

from __future__ import annotations

import atexit
import weakref
from typing import Any

import torch

from sparfuse import _core
from sparfuse.torch import _autograd, _staging, _start


class HookState:
    """The state that the hook keeps between buckets."""

    def __init__(
        self,
        method: Any,
        model: Any,
        group: Any,
        options: dict[str, Any],
        scaler: Any = None,
        nonfinite: str = "raise",
    ) -> None:
        self._given = method
        self.method: Any = None  # the Method, and
        self.names: list[str] = []  # its tensors: from the first step on, if there is no model
        self.group = group
        self.options = options
        self.scaler = scaler
        self.nonfinite = nonfinite
        self.rank: Any = None
        self._averaged = False  # whether gradients may still hold the averages of the last step
        self._uncleared_in = -1  # the backward pass that adds to them
        self.places: dict[int, int] = {}
        self._waiting: list[tuple[Any, Any]] = []
        self._pairs: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self._staged: list[torch.Tensor] = []
        self._refusal = _start.refusal_of_nonfinite(nonfinite)
        if model is None and self._refusal:
            raise _core.ConfigError(self._refusal)
        if model is not None:
            inner = model.module if hasattr(model, "register_comm_hook") else model
            self._start(_start.trained(inner.named_parameters()))

    def _start(self, layout: list[tuple[str, torch.nn.Parameter]]) -> None:
        besides = {"nonfinite": self.nonfinite}
        self.method = _start.start_rank(
            self._given, layout, self.group, self.options, self._refusal, besides
        )
        self.rank = self.method._ranks
        self.names = [name for name, _ in layout]
        self.places = {id(parameter): place for place, (_, parameter) in enumerate(layout)}
        smallest = min((parameter for _, parameter in layout), key=lambda p: p.numel())
        of = weakref.ref(smallest)
        smallest.register_hook(lambda _gradient: self._look_before(of()))
        atexit.register(self.close)

    def _look_before(self, parameter: torch.Tensor | None) -> None:
        """Notes, before a gradient is accumulated, whether grad still holds the last averages."""
        if not self._averaged or parameter is None:
            return
        if parameter.grad is None or not bool(parameter.grad.any()):
            self._averaged = False
        else:
            self._uncleared_in = _autograd.current_task()

    def _scales_loss(self) -> bool:
        return self.scaler is not None and self.scaler.is_enabled()

    def _begin(self) -> None:
        scale = float(self.scaler.get_scale()) if self._scales_loss() else 1.0
        self.rank.begin(scale, self.rank.keeps_something)

    def close(self) -> None:
        if self.rank is not None:
            self.rank.close()
        atexit.unregister(self.close)

    def require_start(self) -> None:
        if self.rank is None:
            raise _core.ConfigError(
                "the hook has no method yet, whose layout the first step shows; give sf.comm_hook the "
                "model: sf.comm_hook(method, ddp)"
            )

    def take(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        pairs = list(zip(bucket.parameters(), bucket.gradients()))
        if self.rank is not None:
            if not self._waiting:
                self._begin()
            self._announce(pairs)
        self._pairs += pairs
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
            names = [(f"parameter {i}", p) for i, (p, _) in enumerate(self._pairs)]
            self._start(names)
            self._begin()
            self._announce(self._pairs)
        refusal = ""
        if self.rank.sparsified and self._uncleared_in == _autograd.current_task():
            refusal = (
                "gradients were added to the averages of the step before; call "
                "optimizer.zero_grad() before backward(), or accumulate within ddp.no_sync()"
            )
        try:
            self.rank.end_backward(refusal)
            kind, rank, text = self.rank.finish()
            if kind == "refused":
                raise _core.ConfigError(refusal or f"rank {rank}: {text}")
            if kind != "fine" and self.nonfinite == "raise" and not self._scales_loss():
                raise _core.NumericError(f"rank {rank}: {text}")
            places = [(self.places[id(parameter)], grad) for parameter, grad in self._pairs]
            if kind == "fine":
                _staging.write_averages(self.rank, places)
            else:
                for _, grad in places:
                    grad.fill_(float("nan"))
            self._averaged, self._uncleared_in = True, -1
            for future, buffer in self._waiting:
                future.set_result(buffer)
        finally:
            self._waiting.clear()
            self._pairs.clear()
            self._staged.clear()


def _hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations, as objects
    return state.take(bucket)


def comm_hook(
    method: Any,
    model: torch.nn.Module | None = None,
    *,
    density: float | None = None,
    group: Any = None,
    scaler: Any = None,
    nonfinite: str = "raise",
    **options: Any,
) -> tuple[HookState, Any]:
    """A hook for DistributedDataParallel: ddp.register_comm_hook(*sf.comm_hook("safusion", ddp)).

    The first of both results, `state`, is what sf.state_dict and sf.load_state_dict take.

    DDP's buckets only announce gradients that are ready. The method decides the units and their
    order, and keeps its state by parameter. Without `model`, the layout is taken from the first
    step, and parameters are called "parameter 0", ... `scaler` is the GradScaler of the loop,
    `nonfinite` as in distribute.
    """
    given = {"density": density, **options}
    return HookState(method, model, group, given, scaler, nonfinite), _hook
