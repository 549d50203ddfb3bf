"""Trains ranks apart, and averages every so many steps what they moved by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from sparfuse import _core
from sparfuse.torch import _staging, _start


class _Round:
    """Exchanges each parameter's move since all ranks were last equal, at the anchor."""

    def __init__(self, rank: Any, parameters: list[torch.Tensor], outer: Any) -> None:
        self.rank = rank
        self.parameters = parameters
        self.outer = outer
        self.anchors = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def exchange(self) -> None:
        moved = [
            _staging.plain(anchor - parameter)
            for anchor, parameter in zip(self.anchors, self.parameters)
        ]
        self.rank.begin(1.0, self.rank.keeps_something)
        for index, tensor in enumerate(moved):
            self.rank.announce(index, tensor.data_ptr(), tensor.numel())
        self.rank.end_backward("")
        kind, rank, text = self.rank.finish()
        if kind != "fine":
            raise _core.NumericError(f"rank {rank}: {text}")
        _staging.write_averages(self.rank, enumerate(moved))
        for parameter, anchor, average in zip(self.parameters, self.anchors, moved):
            parameter.copy_(anchor)
            parameter.grad = average.to(parameter.dtype)
        self.outer.step()
        for parameter, anchor in zip(self.parameters, self.anchors):
            anchor.copy_(parameter)
            parameter.grad = None


@contextlib.contextmanager
def local_steps(
    model: torch.nn.Module,
    inner: torch.optim.Optimizer,
    outer: torch.optim.Optimizer | None = None,
    *,
    every: int,
    fragments: int = 1,
    delay: int = 0,
    mix: float = 0.0,
    method: Any = "dense",
    group: Any = None,
    **options: Any,
) -> Iterator[torch.nn.Module]:
    """A context in which each rank trains alone; ranks exchange after every `every` steps of `inner`.

    At the end of the context they exchange what they moved since, so that all have the same parameters.
    An exchange averages the moves of the parameters since the last one, as a gradient, by any
    method. Then `outer` (by default SGD, rate 0.7, Nesterov momentum 0.9) takes a step with the
    average, from the parameters that ranks had in common after the last exchange. `fragments`,
    `delay` and `mix` do not work yet: values other than the defaults raise UnsupportedError.
    """
    if every < 1 or fragments < 1 or every % fragments != 0 or not 0 <= delay < max(1, every // fragments):
        raise _core.ConfigError(
            f"local_steps: every = {every}, fragments = {fragments}, delay = {delay}: expected every "
            "to be a multiple of fragments, and delay below every / fragments"
        )
    if fragments > 1 or delay > 0 or mix != 0.0:
        raise _core.UnsupportedError(
            "local_steps: fragments, delay and mix need a strategy that sends while steps go on; "
            "write fragments=1, delay=0, mix=0"
        )
    refusal = _start.refusal_of_model(model)
    if getattr(model, "_sparfuse", None) is not None:
        refusal = (
            "the model is distributed, so that its gradients are averaged in each step; detach it"
        )
    layout = [] if refusal else _start.trained(model.named_parameters())
    stepped = {id(p) for of in inner.param_groups for p in of["params"]}
    if not refusal and not any(id(p) in stepped for _, p in layout):
        refusal = "inner has no parameter of the model; expected the optimizer of its parameters"
    rank = _start.start_rank(method, layout, group, options, refusal)._ranks
    _start.broadcast_state(model, group)
    parameters: list[torch.Tensor] = [parameter for _, parameter in layout]
    if outer is None:
        outer = torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)
    exchange = _Round(rank, parameters, outer)
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps % every == 0:
            exchange.exchange()

    handle = inner.register_step_post_hook(count)
    model._sparfuse_local = True  # type: ignore[assignment]
    try:
        yield model
        if steps % every != 0:
            exchange.exchange()
    finally:
        handle.remove()
        model.__dict__.pop("_sparfuse_local", None)
        rank.close()
