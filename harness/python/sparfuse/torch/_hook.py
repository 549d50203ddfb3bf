"""Makes a communication hook for those who keep DistributedDataParallel."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from sparfuse import _core
from sparfuse.torch import _autograd, _staging, _start
from sparfuse.torch._report import Counts


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
        self.counts = Counts()
        self.elements = 0
        self._end: Any = None
        self._error: BaseException | None = None  # of this backward pass
        self._lacks = ""  # the reason why a gradient of this pass is not for this hook
        self._averaged = False  # whether gradients may still hold the averages of the last step
        self._uncleared_in = -1  # the backward pass that adds to them
        self.places: dict[int, int] = {}
        self._waiting: list[tuple[Any, Any]] = []
        self._pairs: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self._staged: list[torch.Tensor] = []
        self._refusal = _start.refusal_of_nonfinite(nonfinite)
        if model is None:
            if self._refusal:
                raise _core.ConfigError(self._refusal)
            return
        inner = model.module if hasattr(model, "register_comm_hook") else model
        if not isinstance(inner, torch.nn.Module):
            self._refusal = f"model is a {type(model).__name__}; expected the DistributedDataParallel"
        self._start([] if self._refusal else _start.trained(inner.named_parameters()))

    def _start(self, layout: list[tuple[str, torch.nn.Parameter]]) -> None:
        besides = {"nonfinite": self.nonfinite}
        self.method = _start.start_rank(
            self._given, layout, self.group, self.options, self._refusal, besides
        )
        self.rank = self.method._ranks
        self.names = [name for name, _ in layout]
        self.elements = sum(parameter.numel() for _, parameter in layout)
        self.places = {id(parameter): place for place, (_, parameter) in enumerate(layout)}
        smallest = min((parameter for _, parameter in layout), key=lambda p: p.numel())
        of, itself = weakref.ref(smallest), weakref.ref(self)

        def look(_gradient: torch.Tensor) -> None:
            state = itself()
            if state is not None:
                state._look_before(of())

        smallest.register_hook(look)
        self._end = weakref.finalize(self, self.rank.close)  # when it is dropped, or at exit

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
        if self._end is not None:
            self._end()

    def require_start(self) -> None:
        if self.rank is None:
            raise _core.ConfigError(
                "the hook has no method yet, whose layout the first step shows; give sf.comm_hook the "
                "model: sf.comm_hook(method, ddp)"
            )

    def take(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Announces a bucket's gradients. What fails is raised when DDP has ended its pass, which it
        could not repeat otherwise."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        pairs = list(zip(bucket.parameters(), bucket.gradients()))
        self._waiting.append((future, bucket.buffer()))
        self._pairs += pairs
        try:
            if self.rank is not None and self._error is None:
                if len(self._waiting) == 1:
                    self._begin()
                self._announce(pairs)
            if bucket.is_last() and self._error is None:
                self._finish()
        except BaseException as error:  # noqa: BLE001  (KeyboardInterrupt, too)
            self._error = error
        if bucket.is_last():
            self._complete()
        return future

    def _announce(self, pairs: list[tuple[torch.nn.Parameter, torch.Tensor]]) -> None:
        for parameter, grad in pairs:
            place = self.places.get(id(parameter))
            if place is None:
                self._lacks = (
                    f"DDP gives a parameter of shape {tuple(parameter.shape)} that the hook's model "
                    "lacks; give sf.comm_hook the model that DDP wraps"
                )
                continue
            plain = _staging.plain(grad)
            self._staged.append(plain)
            self.rank.announce(place, plain.data_ptr(), plain.numel())

    def _finish(self) -> None:
        if self.rank is None:  # only the first step shows the layout
            names = [(f"parameter {i}", p) for i, (p, _) in enumerate(self._pairs)]
            self._start(names)
            self._begin()
            self._announce(self._pairs)
        refusal = self._lacks
        if self.rank.sparsified and self._uncleared_in == _autograd.current_task():
            refusal = refusal or (
                "gradients were added to the averages of the step before; call "
                "optimizer.zero_grad() before backward(), or accumulate within ddp.no_sync()"
            )
        self.rank.end_backward(refusal)
        kind, rank, text = self.rank.finish()
        self.counts.add(self.rank)
        if kind == "refused":
            raise _core.ConfigError(refusal or f"rank {rank}: {text}")
        if kind != "fine" and self.nonfinite == "raise" and not self._scales_loss():
            raise _core.NumericError(f"rank {rank}: {text}")
        if kind == "fine":
            places = [(self.places[id(parameter)], grad) for parameter, grad in self._pairs]
            _staging.write_averages(self.rank, places)
        else:
            self._fill_by_nan()
        self._averaged, self._uncleared_in = True, -1

    def _fill_by_nan(self) -> None:
        for _, buffer in self._waiting:
            buffer.fill_(float("nan"))

    def _complete(self) -> None:
        """Gives DDP the results of all buckets, and ends this pass."""
        error, self._error = self._error, None
        if error is not None:
            self._fill_by_nan()  # no step on gradients of this rank alone goes unnoticed
            _autograd.after_backward(error)
        for future, buffer in self._waiting:
            future.set_result(buffer)
        if self.rank is not None:
            _staging.keep_if_abandoned(self.rank, self._waiting, self._pairs, self._staged)
        self._waiting.clear()
        self._pairs.clear()
        self._staged.clear()
        self._lacks = ""


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
