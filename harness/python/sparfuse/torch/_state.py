"""Holds the state that a rank leaves to the next step, as tensors and numbers for torch.save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy
import torch

from sparfuse import _core

_KINDS = ("residuals", "velocities", "copies", "averages")


class _Keeps(Protocol):
    """A DistributedModel, or the rounds of local_steps."""

    @property
    def rank(self) -> Any: ...

    @property
    def method(self) -> Any: ...

    @property
    def names(self) -> list[str]: ...


def state_of(model: _Keeps) -> dict[str, Any]:
    found = model.rank.state()
    state: dict[str, Any] = {
        "rank": model.rank.rank,
        "world_size": model.rank.world_size,
        "method": model.method.name,
        "steps": model.rank.steps,
    }
    for kind in _KINDS:
        state[kind] = {
            store: {name: torch.from_numpy(array) for name, array in tensors.items()}
            for store, tensors in found[kind].items()
        }
    state["remembered"] = {place: torch.from_numpy(a) for place, a in found["remembered"].items()}
    state["parts"] = {kind: _saved(memory, kind) for kind, memory in found["parts"].items()}
    return state


def _saved(value: Any, of: str, place: str = "") -> Any:
    """The memory of a class in Python, in types that torch.load(weights_only=True) reads."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, (str, int)):
                raise _core.ConfigError(
                    f"{of}: state_dict() returned a dict{place} with the key {key!r}; expected a str"
                )
        return {key: _saved(one, of, f"{place}[{key!r}]") for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        saved = [_saved(one, of, f"{place}[{at}]") for at, one in enumerate(value)]
        return saved if isinstance(value, list) else tuple(saved)
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        try:
            return torch.from_numpy(numpy.asarray(value))
        except (TypeError, ValueError):  # another dtype, or another byte order
            kind = f"array of {value.dtype.str}"
    elif value is None or type(value) in (bool, int, float, str, bytes):
        return value
    else:
        kind = type(value).__name__
    raise _core.ConfigError(
        f"{of}: state_dict() returned a dict with {place}, of type {kind}; expected numbers, strings and "
        "NumPy arrays of numbers, and dicts, lists and tuples of these"
    )


def _restored(value: Any) -> Any:
    """The argument of _saved."""
    if isinstance(value, Mapping):
        return {key: _restored(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_restored, value))
    if isinstance(value, torch.Tensor):
        return value.numpy() if value.dim() else value.numpy()[()]  # a number keeps its dtype
    return value


def load_state(model: _Keeps, state: Any, change: str) -> None:
    if change not in ("mean", "reset"):
        raise _core.ConfigError(f'change = "{change}": expected "mean" or "reset"')
    rank, world_size = model.rank.rank, model.rank.world_size
    if isinstance(state, (str, bytes)) or not isinstance(state, (Mapping, Sequence)):
        raise _core.ConfigError(
            f"state is a {type(state).__name__}; expected a result of state_dict(), or a list of those"
        )
    states = [state] if isinstance(state, Mapping) else list(state)
    if not states:
        raise _core.ConfigError("state is an empty list; expected results of state_dict()")
    for one in states:
        if not isinstance(one, Mapping):
            raise _core.ConfigError(
                f"state has a {type(one).__name__}; expected results of state_dict()"
            )
        for key in ("rank", "world_size", "method", "steps", *_KINDS):
            if key not in one and key != "averages":  # which states of earlier versions lack
                raise _core.ConfigError(
                    f'state has no "{key}"; expected a result of state_dict()'
                )
        if one["method"] != model.method.name:
            raise _core.ConfigError(
                f'state is of method "{one["method"]}", the model of "{model.method.name}"; '
                "expected the same"
            )
        for key in ("rank", "world_size", "steps"):
            if not isinstance(one[key], int) or one[key] < 0:
                raise _core.ConfigError(f"state has {key} = {one[key]!r}; expected a whole number")
        for kind in (*_KINDS, "remembered", "parts"):
            found = one.get(kind, {})
            if not isinstance(found, Mapping):
                raise _core.ConfigError(f"state has {kind} of type {type(found).__name__}; expected a dict")
            if kind in _KINDS:
                for store, tensors in found.items():
                    _require_tensors(tensors, model, f"{kind} {store}")
    by_rank = {one["rank"]: one for one in states}
    then = states[0]["world_size"]
    if then == world_size:
        if rank not in by_rank:
            raise _core.ConfigError(
                f"state has rank {', '.join(map(str, by_rank))}; expected the state of rank {rank}"
            )
        chosen = by_rank[rank]
    else:
        missing = [r for r in range(then) if r not in by_rank]
        if missing:
            raise _core.ConfigError(
                f"state is of {then} ranks, now there are {world_size}, and it lacks rank "
                f"{', '.join(map(str, missing))}; expected a list of all {then}"
            )
        chosen = _mean([by_rank[r] for r in range(then)], drop=change == "reset")
    arrays = {
        kind: {
            store: {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
            for store, tensors in chosen.get(kind, {}).items()
        }
        for kind in _KINDS
    }
    remembered = chosen.get("remembered", {})  # which states of earlier versions lack
    arrays["remembered"] = {place: numbers.tolist() for place, numbers in remembered.items()}
    arrays["parts"] = _restored(chosen.get("parts", {}))
    model.rank.load_state(arrays, chosen["steps"])


def _require_tensors(tensors: Any, model: _Keeps, of: str) -> None:
    if not isinstance(tensors, Mapping):
        raise _core.ConfigError(
            f"state has {of} of type {type(tensors).__name__}; expected a dict of tensors"
        )
    for name in model.names:
        if name not in tensors:
            raise _core.ConfigError(
                f'the state of "{name}" is missing: expected an entry for each tensor of the model'
            )
        if not isinstance(tensors[name], torch.Tensor):
            raise _core.ConfigError(
                f'the state of "{name}" is a {type(tensors[name]).__name__}; expected a tensor'
            )
        if not bool(tensors[name].isfinite().all()):
            raise _core.NumericError(
                f'the state of "{name}" has a NaN or an infinity; expected finite numbers'
            )
    known = set(model.names)
    for name in tensors:
        if name not in known:
            raise _core.ConfigError(
                f'state has "{name}"; expected tensors of the model alone'
                f"{_core._suggestion(name, model.names)}"
            )


def _mean(states: list[Mapping[str, Any]], drop: bool) -> dict[str, Any]:
    mean: dict[str, Any] = {"steps": states[0]["steps"], "parts": None}  # which begin anew
    for kind in _KINDS:
        mean[kind] = {}
        if drop or kind == "averages":  # of as many ranks as there were: they begin anew
            continue
        for store in {store for state in states for store in state[kind]}:
            given = [state[kind][store] for state in states if store in state[kind]]
            mean[kind][store] = {
                name: sum(tensors[name].double() for tensors in given).div(len(states)).float()
                for name in given[0]
            }
    return mean
