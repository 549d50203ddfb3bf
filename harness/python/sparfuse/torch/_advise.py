"""Says before a training which methods would gain: backward is timed here, a step is modelled."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

import sparfuse
from sparfuse import _core, _found
from sparfuse._method import Method, _method_file, list_methods

_SIZES = (10_000, 1_000_000)  # elements of the selections that are timed


class _Modelled(Method):
    """A Method whose steps are modelled, not run."""

    def __init__(self, forward: float, selection: list[tuple[int, float]], *arguments: Any, **keywords: Any) -> None:
        self._given = {"forward_seconds": forward, "selection": selection}
        super().__init__(*arguments, **keywords)

    def _make(self, **settings: Any) -> Any:
        for key in ("threads", "deadline_seconds", "verify"):
            settings.pop(key)
        return _core._model_step(**self._given, **settings)


class Advice:
    """The modelled methods. Prints as a table; `rows` has the fastest first, `best` is its name."""

    def __init__(self, rows: list[dict[str, Any]], text: str) -> None:
        self.rows = rows
        self.best = rows[0]["method"]
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _read_link(link: Any) -> dict[str, float]:
    number = r"(\d+(?:\.\d+)?(?:e-?\d+)?)"
    found = re.fullmatch(rf"{number} ?Gbit/s: ?{number} ?us", str(link))
    if not found:
        raise _core.ConfigError(f'link = "{link}": expected "1Gbit/s:100us", its speed and a message\'s start-up time')
    return {"gbps": float(found[1]), "alpha_us": float(found[2])}


class _Timed:
    """Times forward and each gradient of backward, in the order in which gradients come."""

    def __init__(self, model: torch.nn.Module, inputs: Any, loss: Callable[..., Any] | None, repeats: int) -> None:
        model = copy.deepcopy(model)
        names = {id(p): name for name, p in model.named_parameters() if p.requires_grad and p.numel() > 0}
        self.shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if id(p) in names}
        came: list[tuple[str, float]] = []
        for parameter in model.parameters():
            if id(parameter) in names:
                parameter.register_post_accumulate_grad_hook(
                    lambda p: came.append((names[id(p)], time.perf_counter()))
                )
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        self.forward: list[float] = []
        self.backward: list[list[float]] = []
        self.order: list[str] = []
        for repeat in range(repeats + 1):
            model.zero_grad(set_to_none=True)
            begin = time.perf_counter()
            out = model(*given)
            value = loss(out) if loss else _mean_of(out)
            if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
                raise _core.ConfigError(
                    "advise: the loss is no single number that needs a gradient; expected a model that is "
                    "trained, and loss=function of its output that returns a number"
                )
            middle = time.perf_counter()
            came.clear()
            value.backward()
            if repeat == 0:  # the first pass allocates memory, and is not timed
                self.order = list(dict.fromkeys(name for name, _ in came))
                continue
            at = {name: when for name, when in came}
            times, last = [], middle
            for name in self.order:
                times.append(max(0.0, at.get(name, last) - last))
                last = max(last, at.get(name, last))
            self.forward.append(middle - begin)
            self.backward.append(times)
        if not self.order:
            raise _core.ConfigError("advise: backward gave no parameter a gradient; expected a model that is trained")

    def at(self, quantile: float) -> tuple[float, list[float]]:
        return _quantile(self.forward, quantile), [_quantile(list(t), quantile) for t in zip(*self.backward)]


def _mean_of(out: Any) -> torch.Tensor:
    while not isinstance(out, torch.Tensor):
        out = next(iter(out.values())) if hasattr(out, "values") else out[0]
    return out.float().square().mean()


def _quantile(values: list[float], quantile: float) -> float:
    ordered = sorted(values)
    return ordered[round(quantile * (len(ordered) - 1))]


def _time_selection(sparsifier: str, density: float, repeats: int) -> list[list[float]]:
    """Seconds of a selection with feedback, as [size][repeat]."""
    seconds: list[list[float]] = []
    for size in _SIZES:
        feedback = sparfuse.ErrorFeedback(sparfuse.Sparsifier(sparsifier, density=density))
        gradient = numpy.random.default_rng(0).standard_normal(size, dtype=numpy.float32)
        feedback.step("warm up", gradient)
        taken = []
        for _ in range(repeats):
            begin = time.perf_counter()
            feedback.step("timed", gradient)
            taken.append(time.perf_counter() - begin)
        seconds.append(taken)
    return seconds


def _selection_of(method: Any) -> str:
    """The sparsifier whose time counts for the method."""
    name = _found.parts(_method_file(method))["sparsifier"]
    return name if name != "none" else "topk"


def _in_python(sparsifier: str) -> str:
    """A mark, since only parts in C++ compare with one another."""
    return " (selection in Python)" if sparsifier.startswith("python:") else ""


def _refusal_of(model: Any, methods: Any, repeats: Any) -> str:
    if not isinstance(model, torch.nn.Module):
        return f"model is a {type(model).__name__}; expected a torch.nn.Module"
    if methods is not None and (isinstance(methods, (str, dict)) or not list(methods)):
        return f"methods = {methods!r}: expected a list of names or dicts, or None for all"
    if type(repeats) is not int or repeats < 1:
        return f"repeats = {repeats!r}: expected 1 or more"
    return ""


def advise_for(
    model: torch.nn.Module,
    example_inputs: Any,
    link: str,
    world_size: int,
    loss: Callable[..., Any] | None,
    methods: Sequence[Any] | None,
    density: float,
    repeats: int,
) -> Advice:
    shape = _read_link(link)
    refusal = _refusal_of(model, methods, repeats)
    if refusal:
        raise _core.ConfigError(f"advise: {refusal}")
    with torch.random.fork_rng(devices=[]):  # dropout draws, and the training's numbers stay
        timed = _Timed(model, example_inputs, loss, repeats)
    layout = [(name, timed.shapes[name]) for name in timed.order]
    chosen = list(methods) if methods is not None else [method["name"] for method in list_methods()]
    curves: dict[str, list[list[float]]] = {}
    rows, left_out = [], []
    for method in chosen:
        name = method if isinstance(method, str) else method.get("name", "given")
        band = []
        try:
            selectable = _selection_of(method)
            if selectable not in curves:
                curves[selectable] = _time_selection(selectable, density, repeats)
            for quantile in (0.5, 0.25, 0.75):
                forward, backward = timed.at(quantile)
                points = [(n, _quantile(s, quantile)) for n, s in zip(_SIZES, curves[selectable])]
                step = _Modelled(forward, points, method, world_size, layout, density=density,
                                 link=shape, backward_seconds=backward)._ranks
                band.append(step)
        except _core.Error as error:
            left_out.append(f"{name}: {error}")
            continue
        forward, backward = timed.at(0.5)
        parts = {"computing": forward + sum(backward), "the link": band[0]["exposed_seconds"],
                 "selecting": band[0]["sparsify_seconds"]}
        rows.append({
            "method": name,
            "step_seconds": band[0]["step_seconds"],
            "low_seconds": min(step["step_seconds"] for step in band),
            "high_seconds": max(step["step_seconds"] for step in band),
            "exposed_seconds": band[0]["exposed_seconds"],
            "sent_bytes": band[0]["sent_bytes"],
            "decides": max(parts, key=lambda part: parts[part]) + _in_python(selectable),
        })
    if not rows:
        raise _core.ConfigError("advise: no method can be modelled here: " + "; ".join(left_out))
    rows.sort(key=lambda row: row["step_seconds"])
    return Advice(rows, _table(rows, left_out, link, world_size, repeats))


def _table(rows: list[dict[str, Any]], left_out: list[str], link: str, world_size: int, repeats: int) -> str:
    width = max(6, *(len(row["method"]) for row in rows))
    lines = [f"{'method':<{width}}  {'step ms':>9}  {'band ms':>19}  {'exposed ms':>10}  {'sent MB':>8}  decides"]
    for row in rows:
        band = f"{1e3 * row['low_seconds']:.2f} to {1e3 * row['high_seconds']:.2f}"
        lines.append(f"{row['method']:<{width}}  {1e3 * row['step_seconds']:>9.2f}  {band:>19}  "
                     f"{1e3 * row['exposed_seconds']:>10.2f}  {1e-6 * row['sent_bytes']:>8.3f}  {row['decides']}")
    lines.append(f"Steps are modelled: {world_size} ranks on a declared link of {link}; forward, backward and "
                 f"selections are the medians of {repeats} repeats on this machine, and the band is of "
                 "their quartiles. Packing and summing are taken for 1 us and 1 ns an element. On one machine "
                 "ranks share its cores.")
    lines += [f"left out: {text}" for text in left_out]
    return "\n".join(lines)

