"""Reports the bytes, seconds and spans of steps."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from sparfuse import _core


class Report(dict):  # type: ignore[type-arg]
    """A dict that prints as lines."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{key:<{width}}  {value}" for key, value in self.items())

    __str__ = __repr__


class Counts:
    """The sums of a rank's steps, and what takes their spans while sf.trace asks for them."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}
        self.take_spans: Any = None

    def add(self, rank: Any) -> None:
        """Adds the step that the rank has just ended."""
        for key, value in rank.record().items():
            self.totals[key] = self.totals.get(key, 0) + value
        if self.take_spans is not None:
            self.take_spans(rank.timeline())


class Counted(Protocol):
    """A rank of a method whose steps are counted; `elements` are those of its layout."""

    rank: Any
    method: Any
    counts: Counts

    @property
    def elements(self) -> int: ...


_SUMMED = ("sent_bytes", "received_bytes", "payload_bytes", "exposed_seconds", "python_seconds")


def report_of(parts: Sequence[Counted]) -> Report:
    """Of the ranks that this process has of one model: one, or one for each group of parameters."""
    records = [part.rank.record() for part in parts]
    sums = {key: sum(record[key] for record in records) for key in _SUMMED}
    elements = sum(part.elements for part in parts)
    return Report(
        sent_bytes=sums["sent_bytes"],
        received_bytes=sums["received_bytes"],
        payload_bytes=sums["payload_bytes"],
        density=sum(record["selected"] for record in records) / elements,
        exposed_seconds=sums["exposed_seconds"],
        python_seconds=sums["python_seconds"],
        residual_norm=math.hypot(*(part.rank.residual_norm() for part in parts)),
        steps=max(part.rank.steps for part in parts),
        plan=" | ".join(part.rank.plan() for part in parts),
        method=parts[0].method.name,
        total={key: sum(part.counts.totals.get(key, 0) for part in parts) for key in _SUMMED},
    )


@contextlib.contextmanager
def trace_of(model: Counted, path: Any, ranks: Sequence[int], steps: int) -> Iterator[None]:
    rank = model.rank.rank
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

    model.counts.take_spans = take
    try:
        yield
    finally:
        model.counts.take_spans = None
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
