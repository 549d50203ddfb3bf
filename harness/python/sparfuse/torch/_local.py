"""Trains ranks apart, and averages every so many steps what they moved by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from sparfuse import _core
from sparfuse.torch import _staging, _start, _state

_OWN = ("every", "made", "anchors", "parameters", "outer")


class Round:
    """Exchanges each parameter's move since all ranks were last equal, at the anchor."""

    def __init__(
        self, method: Any, layout: list[tuple[str, torch.nn.Parameter]], outer: Any, every: int
    ) -> None:
        self.method = method
        self.rank: Any = method._ranks
        self.names = [name for name, _ in layout]
        self.parameters: list[torch.Tensor] = [parameter for _, parameter in layout]
        self.outer = outer
        self.every = every
        self.made = 0  # steps of this window
        self.anchors = [parameter.detach().clone() for parameter in self.parameters]

    def state(self) -> dict[str, Any]:
        return {
            **_state.state_of(self),
            "every": self.every,
            "made": self.made,
            "anchors": {n: a.clone() for n, a in zip(self.names, self.anchors)},
            "parameters": {n: p.detach().clone() for n, p in zip(self.names, self.parameters)},
            "outer": self.outer.state_dict(),
        }

    @torch.no_grad()
    def load(self, state: Any) -> None:
        states = [state] if isinstance(state, Mapping) else list(state)
        own = [one for one in states if one.get("rank") == self.rank.rank]
        if not own or own[0].get("world_size") != self.rank.world_size:
            raise _core.ConfigError(
                f"state lacks rank {self.rank.rank} of {self.rank.world_size}: expected the state of "
                "as many ranks, whose parameters differ within a window"
            )
        for key in _OWN:
            if key not in own[0]:
                raise _core.ConfigError(
                    f'state has no "{key}"; expected a result of state_dict() within local_steps'
                )
        if own[0]["every"] != self.every:
            raise _core.ConfigError(
                f"state is of windows of {own[0]['every']} steps, these have {self.every}; expected "
                "the same"
            )
        for kind in ("anchors", "parameters"):
            for name, parameter in zip(self.names, self.parameters):
                if name not in own[0][kind] or own[0][kind][name].shape != parameter.shape:
                    raise _core.ConfigError(
                        f'state: {kind} lack "{name}" of shape {tuple(parameter.shape)}; expected '
                        "each parameter of the model"
                    )
        _state.load_state(self, own[0], "mean")
        for name, parameter, anchor in zip(self.names, self.parameters, self.anchors):
            anchor.copy_(own[0]["anchors"][name])
            parameter.copy_(own[0]["parameters"][name])
        self.outer.load_state_dict(own[0]["outer"])
        self.made = own[0]["made"]

    def count(self) -> None:
        self.made += 1
        if self.made == self.every:
            self.exchange()
            self.made = 0

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

    Within the context state_dict(model) has all of this rank, also in the middle of a window: its
    parameters, those in common, the outer optimizer's state, and what the method has not sent.
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
    started = _start.start_rank(method, layout, group, options, refusal)
    _start.broadcast_state(model, group)
    if outer is None:
        parameters = [parameter for _, parameter in layout]
        outer = torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)
    rounds = Round(started, layout, outer, every)
    handle = inner.register_step_post_hook(lambda *_: rounds.count())
    object.__setattr__(model, "_sparfuse_rounds", rounds)
    try:
        yield model
        if rounds.made != 0:
            rounds.exchange()
    finally:
        handle.remove()
        object.__delattr__(model, "_sparfuse_rounds")
        rounds.rank.close()
