"""Trains ranks alone, and averages their moves once in some steps, also during later steps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from sparfuse import _core, _method
from sparfuse.torch import _staging, _start, _state
from sparfuse.torch._model import NotCopied
from sparfuse.torch._report import Counts

_OWN = ("every", "made", "anchors", "parameters", "outer")
_KINDS = ("residuals", "velocities", "copies", "averages")
_REMEMBERED = ("remembered", "parts")


class Fragment:
    """Parameters that are exchanged at the same steps, by a rank of their own."""

    def __init__(self, method: Any, layout: list[tuple[str, torch.nn.Parameter]]) -> None:
        self.method = method
        self.rank: Any = method._ranks
        self.names = [name for name, _ in layout]
        self.parameters: list[torch.Tensor] = [parameter for _, parameter in layout]
        self.anchors = [parameter.detach().clone() for parameter in self.parameters]
        self.sent: list[torch.Tensor] | None = None  # what is under way: the moves, then averages
        self.arrived = False
        self.steps = 0  # since all ranks had the same parameters
        self.counts = Counts()

    @property
    def elements(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters)

    @torch.no_grad()
    def moves(self) -> list[torch.Tensor]:
        return [_staging.plain(a - p) for a, p in zip(self.anchors, self.parameters)]

    def send(self, moves: list[torch.Tensor]) -> None:
        self.rank.begin(1.0, self.rank.keeps_something)
        for index, tensor in enumerate(moves):
            self.rank.announce(index, tensor.data_ptr(), tensor.numel())
        self.rank.end_backward("")
        self.sent, self.arrived = moves, False

    def average(self) -> list[torch.Tensor]:
        """The averages of the moves that were sent last; waits for them."""
        assert self.sent is not None
        if not self.arrived:
            try:
                kind, rank, text = self.rank.finish()
            finally:
                _staging.keep_if_abandoned(self.rank, self.sent)
            self.counts.add(self.rank)
            if kind != "fine":
                raise _core.NumericError(f"rank {rank}: {text}")
            _staging.write_averages(self.rank, enumerate(self.sent))
            self.arrived = True
        return self.sent

    def take(self) -> list[torch.Tensor]:
        averages = self.average()
        self.sent = None
        return averages

    @torch.no_grad()
    def back(self) -> None:
        for parameter, anchor in zip(self.parameters, self.anchors):
            parameter.copy_(anchor)


@dataclasses.dataclass(eq=False, repr=False)
class Round(NotCopied):
    """Exchanges each fragment's move since its anchor, the parameters that ranks have in common. A copy
    of the model is in no context."""

    model: torch.nn.Module
    fragments: list[Fragment]
    inner: Any
    outer: Any
    every: int
    delay: int
    mix: float
    inner_state: str
    group: Any
    made: int = 0  # steps of this window

    @property
    def rank(self) -> Any:
        return self.fragments[0].rank

    @property
    def method(self) -> Any:
        return self.fragments[0].method

    def _all(self, of: Any) -> dict[str, torch.Tensor]:
        return {
            name: tensor.detach().clone()
            for fragment in self.fragments
            for name, tensor in zip(fragment.names, of(fragment))
        }

    def state(self) -> dict[str, Any]:
        for fragment in self.fragments:
            if fragment.sent is not None:
                fragment.average()  # a rank has its state between exchanges
        parts = [_state.state_of(fragment) for fragment in self.fragments]
        state = dict(parts[0])
        if len(parts) > 1:  # places of what is remembered are within a fragment
            for kind in _REMEMBERED:
                state[kind] = [part[kind] for part in parts]
        for kind in _KINDS:
            state[kind] = {}
            for part in parts:
                for store, tensors in part[kind].items():
                    state[kind].setdefault(store, {}).update(tensors)
        return {
            **state,
            "every": self.every,
            "made": self.made,
            "fragments": [list(fragment.names) for fragment in self.fragments],
            "fragment_steps": [fragment.rank.steps for fragment in self.fragments],
            "steps_apart": [fragment.steps for fragment in self.fragments],
            "under_way": {
                name: average.clone()
                for fragment in self.fragments
                if fragment.sent is not None
                for name, average in zip(fragment.names, fragment.sent)
            },
            "anchors": self._all(lambda fragment: fragment.anchors),
            "parameters": self._all(lambda fragment: fragment.parameters),
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
        one = own[0]
        for key in _OWN:
            if key not in one:
                raise _core.ConfigError(
                    f'state has no "{key}"; expected a result of state_dict() within local_steps'
                )
        if one["every"] != self.every:
            raise _core.ConfigError(
                f"state is of windows of {one['every']} steps, these have {self.every}; expected "
                "the same"
            )
        names = [fragment.names for fragment in self.fragments]
        if one.get("fragments", names) != names:
            raise _core.ConfigError(
                f"state is of {len(one['fragments'])} fragments, here there are {len(names)}, or they "
                "have other parameters; expected the same"
            )
        for kind in ("anchors", "parameters"):
            for fragment in self.fragments:
                for name, parameter in zip(fragment.names, fragment.parameters):
                    if name not in one[kind] or one[kind][name].shape != parameter.shape:
                        raise _core.ConfigError(
                            f'state: {kind} lack "{name}" of shape {tuple(parameter.shape)}; '
                            "expected each parameter of the model"
                        )
        steps = one.get("fragment_steps", [one["steps"]])
        apart = one.get("steps_apart", [one["made"]])
        under_way = one.get("under_way", {})
        for number, fragment in enumerate(self.fragments):
            if fragment.sent is not None:
                fragment.take()
            part = {key: value for key, value in one.items() if key not in _KINDS}
            part["steps"] = steps[number]
            for kind in _REMEMBERED:
                if isinstance(one.get(kind), list):
                    part[kind] = one[kind][number]
                elif len(names) > 1:
                    part.pop(kind, None)  # an earlier version's, of the first fragment alone
            for kind in _KINDS:
                part[kind] = {
                    store: {n: t for n, t in tensors.items() if n in fragment.names or len(names) == 1}
                    for store, tensors in one.get(kind, {}).items()
                }
            _state.load_state(fragment, part, "mean")
            for name, parameter, anchor in zip(
                fragment.names, fragment.parameters, fragment.anchors
            ):
                anchor.copy_(one["anchors"][name])
                parameter.copy_(one["parameters"][name])
            fragment.steps = apart[number]
            if fragment.names[0] in under_way:
                fragment.sent = [under_way[name].clone() for name in fragment.names]
                fragment.arrived = True
        self.outer.load_state_dict(one["outer"])
        self.made = one["made"]

    def _send(self, fragment: Fragment, moves: list[torch.Tensor]) -> None:
        known = {id(parameter) for each in self.fragments for parameter in each.parameters}
        for name, parameter in _start.trained(self.model.named_parameters()):
            if id(parameter) not in known:
                raise _core.ConfigError(
                    f'"{name}" was added, replaced or thawed within sf.local_steps, and ranks would train '
                    "it apart; leave the context before, and enter another one"
                )
        fragment.send(moves)

    def _due(self, step: int) -> Fragment | None:
        """The fragment that is received after this step of the window, from 1; sent `delay` before."""
        period = self.every // len(self.fragments)
        return None if step % period else self.fragments[(step // period - 1) % len(self.fragments)]

    def count(self) -> None:
        """Sends and receives the fragments due after a step. Sends first: moves are from the old anchor."""
        self.made += 1
        for fragment in self.fragments:
            fragment.steps += 1
        if self.delay == self.every:
            self._lag()
        else:
            sent = self._due(self.made + self.delay)
            if sent is not None:
                self._send(sent, sent.moves())
            received = self._due(self.made)
            if received is not None:
                self._step(received, received.take(), self.mix)
                received.steps = received.steps if self.delay > 0 or self.mix > 0 else 0
        if self.made == self.every:
            self.made = 0

    def _lag(self) -> None:
        """At the end of a window, receives the fragments sent at the end of the last window."""
        if self.made != self.every:
            return
        (fragment,) = self.fragments
        moves = fragment.moves()
        averages = fragment.take() if fragment.sent is not None else None
        self._send(fragment, moves)
        if averages is not None:
            self._step(fragment, averages, 0.0)
        fragment.back()

    @torch.no_grad()
    def _step(self, fragment: Fragment, averages: list[torch.Tensor], mix: float) -> None:
        """The outer optimizer moves the anchor, and the parameters become a mix of both."""
        everything = [p for each in self.fragments for p in each.parameters]
        gradients = [parameter.grad for parameter in everything]
        own = [parameter.detach().clone() for parameter in fragment.parameters]
        for parameter in everything:
            parameter.grad = None  # the outer optimizer leaves others alone
        for parameter, anchor, average in zip(fragment.parameters, fragment.anchors, averages):
            parameter.copy_(anchor)
            parameter.grad = average.to(parameter.dtype)
        self.outer.step()
        for parameter, anchor, before in zip(fragment.parameters, fragment.anchors, own):
            anchor.copy_(parameter)
            if mix == 1:
                parameter.copy_(before)
            elif mix != 0:
                parameter.copy_(anchor + mix * (before - anchor))
        for parameter, gradient in zip(everything, gradients):
            parameter.grad = gradient
        if self.inner_state == "reset":
            for parameter in fragment.parameters:
                self.inner.state.pop(parameter, None)
        elif self.inner_state == "average":
            self._average_inner_state(fragment)

    def _average_inner_state(self, fragment: Fragment) -> None:
        """Averages inner's state in the shape of each parameter: momenta, not counts of steps."""
        kept = [
            {
                key: value
                for key, value in sorted(self.inner.state.get(parameter, {}).items())
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape
            }
            for parameter in fragment.parameters
        ]
        keys = [list(each) for each in kept]
        for rank, theirs in enumerate(_start.gather(keys, self.group)):
            if theirs != keys:
                raise _core.ConfigError(
                    f"inner keeps {keys} of the parameters {fragment.names}, on rank {rank} {theirs}; "
                    'expected the same with inner_state="average"'
                )
        ranks = self.rank.world_size
        for values in kept:
            for value in values.values():
                plain = _staging.plain(value).clone()
                torch.distributed.all_reduce(plain, group=self.group)
                value.copy_(plain / ranks)

    def end(self) -> None:
        """Receives the fragments under way, then gives all ranks the same parameters."""
        lags = self.delay == self.every
        for fragment in self.fragments:
            if fragment.sent is None:
                continue
            moves = fragment.moves()  # of a window that has begun, if it lags
            self._step(fragment, fragment.take(), 0.0 if lags else self.mix)
            if lags and self.made > 0:
                self._send(fragment, moves)
                self._step(fragment, fragment.take(), 0.0)
            fragment.steps = 0 if lags else fragment.steps
        apart = [fragment for fragment in self.fragments if fragment.steps > 0]
        for fragment in apart:
            self._send(fragment, fragment.moves())
        for fragment in apart:
            self._step(fragment, fragment.take(), 0.0)


def _fragments_of(
    layout: list[tuple[str, torch.nn.Parameter]], fragments: int | Sequence[Sequence[str]]
) -> list[list[tuple[str, torch.nn.Parameter]]]:
    """The layout in parts: runs of about equal sizes, as planner "fragments" makes them, or named."""
    if not isinstance(fragments, int):
        fragment_of = _method.fragment_of_each(
            fragments, [name for name, _ in layout], "the model's trained parameters"
        )
        return [
            [entry for entry in layout if fragment_of[entry[0]] == number]
            for number in range(len(fragments))
        ]
    if fragments > len(layout):
        raise _core.ConfigError(
            f"fragments = {fragments}: the model has {len(layout)} trained parameters; expected no "
            "more fragments than parameters"
        )
    total = sum(parameter.numel() for _, parameter in layout)
    parts: list[list[tuple[str, torch.nn.Parameter]]] = []
    at, elements = 0, 0
    for number in range(fragments):
        share = total * (number + 1) / fragments
        last = len(layout) - (fragments - number - 1)  # leaves one for each other fragment
        first = at
        while at < last:
            size = layout[at][1].numel()
            nearer = abs(elements + size - share) <= abs(elements - share)
            if at > first and number + 1 < fragments and not nearer:
                break
            elements += size
            at += 1
        parts.append(layout[first:at])
    return parts


def _refusal_of_local_steps(model: Any, inner: Any, options: Mapping[str, Any]) -> str:
    if "trigger" in options:
        return (
            f"trigger = {options['trigger']!r}: averages arrive at set steps here, so that all ranks may "
            "save their state after the same step without asking each other; expected no trigger, or "
            'sparfuse.Method("shadowsync", ..., trigger="idle")'
        )
    if getattr(model, "_sparfuse", None) is not None:
        return "the model is distributed, so that its gradients are averaged in each step; detach it"
    if getattr(model, "_sparfuse_rounds", None) is not None:
        return "the model is in another sf.local_steps; expected one at a time"
    if not hasattr(inner, "param_groups"):
        return f"inner is a {type(inner).__name__}; expected the optimizer of the model's parameters"
    return _start.refusal_of_model(model)


def _stepped_by(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(p) for of in optimizer.param_groups for p in of["params"]}


def _refusal_of_outer(outer: Any, layout: list[tuple[str, torch.nn.Parameter]]) -> str:
    if outer is None:
        return ""
    if not hasattr(outer, "param_groups"):
        return f"outer is a {type(outer).__name__}; expected an optimizer of the model's parameters, or None"
    stepped = _stepped_by(outer)
    for name, parameter in layout:
        if id(parameter) not in stepped:
            return (
                f'outer lacks "{name}", which would never move; expected an optimizer of all '
                "model.parameters()"
            )
    return ""


def _count_of(fragments: Any) -> Any:
    return len(fragments) if isinstance(fragments, Sequence) else fragments


def _refusal_of_dates(every: Any, of: Any, delay: Any, mix: Any, inner_state: Any) -> str:
    for name, value in {"every": every, "delay": delay}.items():
        if type(value) is not int:
            return f"{name} = {value!r}: expected a whole number"
    if not isinstance(mix, (int, float)):
        return f"mix = {mix!r}: expected a number in [0, 1]"
    if inner_state not in ("keep", "reset", "average"):
        return f'inner_state = {inner_state!r}: expected "keep", "reset" or "average"'
    if not isinstance(of, int) and (isinstance(of, str) or not isinstance(of, Sequence)):
        return f"fragments = {of!r}: expected a number, or lists of parameters' names"
    fragments = _count_of(of)
    given = f"every = {every}, fragments = {fragments}, delay = {delay}"
    if every < 1 or fragments < 1 or every % fragments != 0:
        return f"{given}: expected every to be a multiple of fragments"
    if not 0 <= delay < every // fragments and not (fragments == 1 and delay == every):
        return (
            f"{given}: expected delay to be below every / fragments, so that at most one fragment is "
            "under way, or every itself with one fragment"
        )
    if not 0 <= mix <= 1 or (mix != 0 and delay == every):
        return (
            f"{given}, mix = {mix}: expected mix in [0, 1], and 0 with delay = every, where every "
            "window begins at the anchor"
        )
    return ""


@contextlib.contextmanager
def local_steps(
    model: torch.nn.Module,
    inner: torch.optim.Optimizer,
    outer: torch.optim.Optimizer | None = None,
    *,
    every: int,
    fragments: int | Sequence[Sequence[str]] = 1,
    delay: int = 0,
    mix: float = 0.0,
    inner_state: Literal["keep", "reset", "average"] = "keep",
    method: Any = "dense",
    group: Any = None,
    **options: Any,
) -> Iterator[torch.nn.Module]:
    """A context in which each rank trains alone; ranks exchange after every `every` steps of `inner`.

    At the end of the context they exchange what they moved since, so that all have the same parameters.
    An exchange averages the moves of the parameters since the last one, as a gradient, by any
    method. Then `outer` (by default SGD, rate 0.7, Nesterov momentum 0.9) takes a step with the
    average, from the parameters that ranks had in common after the last exchange, the anchor.

    fragments  number of parts of the model, exchanged in turn, one after every `every` / fragments
               steps (Streaming DiLoCo); or the names of the parameters of each. The number divides
               `every`. Each fragment has connections of its own.
    delay      steps of `inner` between sending a fragment's moves and receiving their average,
               beside which the exchange goes on; below `every` / fragments. `every` itself, with
               one fragment: each window's average arrives at the end of the next window.
    mix        weight, from 0 to 1, of the rank's own parameters when an average arrives: 0 takes the
               anchor, 1 ignores it
    inner_state  what becomes of the state that inner keeps of parameters whose average arrives: it
               stays; "reset", it begins anew; or "average", its tensors of a parameter's shape are
               averaged over ranks, by torch.distributed

    Within the context state_dict(model) has all of this rank, also in the middle of a window: its
    parameters, those in common, the outer optimizer's state, what the method has not sent, and
    averages under way. For these it waits, and so every rank must call it after the same step.

    Exchanges have set steps: there is no trigger="idle", as sparfuse.Method has it.
    """
    refusal, layout, parts = _refusal_of_local_steps(model, inner, options), [], [[]]
    refusal = refusal or _refusal_of_dates(every, fragments, delay, mix, inner_state)
    if not refusal:
        layout = _start.trained(model.named_parameters())
        parts = [layout]
        try:  # other ranks must not wait for this one
            parts = _fragments_of(layout, fragments) if layout else parts
        except _core.ConfigError as raised:
            refusal = str(raised)
        if _stepped_by(inner).isdisjoint(id(p) for _, p in layout):
            refusal = "inner has no parameter of the model; expected the optimizer of its parameters"
        refusal = refusal or _refusal_of_outer(outer, layout)
    refusal = refusal and f"local_steps: {refusal}"
    windows = {
        "every": every,
        "fragments": _count_of(fragments),
        "delay": delay,
        "mix": mix,
        "inner_state": inner_state,
    }
    started: list[Fragment] = []
    try:
        for part in parts:
            made = _start.start_rank(method, part, group, options, refusal, windows, model)
            started.append(Fragment(made, part))
        _start.broadcast_state(model, group)
        for fragment in started:
            fragment.anchors = [parameter.detach().clone() for parameter in fragment.parameters]
        if outer is None:
            parameters = [parameter for _, parameter in layout]
            outer = torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)
        rounds = Round(model, started, inner, outer, every, delay, mix, inner_state, group)
        handle = inner.register_step_post_hook(lambda *_: rounds.count())
        object.__setattr__(model, "_sparfuse_rounds", rounds)
        try:
            yield model
            rounds.end()
        finally:
            handle.remove()
            object.__delattr__(model, "_sparfuse_rounds")
    finally:
        for fragment in started:
            fragment.rank.close()
