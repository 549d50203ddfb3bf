"""Reports the bytes, seconds and spans of steps."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sparfuse import _core
from sparfuse.torch._model import DistributedModel


class Report(dict):  # type: ignore[type-arg]
    """A dict that prints as lines."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{key:<{width}}  {value}" for key, value in self.items())

    __str__ = __repr__


def report_of(model: DistributedModel) -> Report:
    record = model.rank.record()
    elements = sum(parameter.numel() for parameter in model.parameters)
    total = dict(model.totals)
    steps = model.rank.steps
    total.pop("selected", None)
    return Report(
        sent_bytes=record["sent_bytes"],
        received_bytes=record["received_bytes"],
        payload_bytes=record["payload_bytes"],
        density=record["selected"] / elements,
        exposed_seconds=record["exposed_seconds"],
        python_seconds=record["python_seconds"],
        residual_norm=model.rank.residual_norm(),
        steps=steps,
        plan=model.rank.plan(),
        method=model.method.name,
        total=total,
    )


@contextlib.contextmanager
def trace_of(
    model: DistributedModel, path: Any, ranks: Sequence[int], steps: int, rank: int
) -> Iterator[None]:
    if steps < 1:
        raise _core.ConfigError(f"trace: steps = {steps}: expected 1 or more")
    for one in ranks:
        if not 0 <= one < model.rank.world_size:
            raise _core.ConfigError(
                f"trace: ranks has {one}; expected 0 to {model.rank.world_size - 1}"
            )
    if not Path(path).absolute().parent.is_dir():
        raise _core.ConfigError(f"trace: there is no folder {Path(path).absolute().parent} for {path}")
    if rank not in ranks:
        yield
        return
    taken: list[list[dict[str, Any]]] = []

    def take(spans: list[dict[str, Any]]) -> None:
        if len(taken) < steps:
            taken.append(spans)

    model._tracing = take
    try:
        yield
    finally:
        model._tracing = None
        target = Path(path)
        if len(ranks) > 1:
            target = target.with_name(f"{target.stem}-rank{rank}{target.suffix}")
        target.write_text(json.dumps({"traceEvents": _events(taken, rank)}))


def _events(steps: list[list[dict[str, Any]]], rank: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    begin = 0.0
    for number, spans in enumerate(steps):
        for span in spans:
            events.append(
                {
                    "name": f"{span['kind']} {span['label']}".strip(),
                    "ph": "X",
                    "pid": rank,
                    "tid": span["lane"],
                    "ts": 1e6 * (begin + span["begin_seconds"]),
                    "dur": 1e6 * (span["end_seconds"] - span["begin_seconds"]),
                    "args": {"bytes": span["bytes"], "step": number},
                }
            )
        begin += max((span["end_seconds"] for span in spans), default=0.0)
    return events
