"""Draws the cost of a method's fusion by sparsifier: copying, waiting for a buffer to close,
exchange."""

from sparfuse_report import cells as selection
from sparfuse_report import published as papers
from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn, caption

# kind of a span, the lane that tells it from others, our words, the words of SAFusion, Fig. 7
PARTS = (
    ("pack", None, "copying into the buffer", "TensorFusion"),
    ("wait", "align", "waiting for the buffer's close", "SynchronizationWaiting"),
    ("exchange", None, "exchange", "AllGather"),
)
LOOKS = {"pack": "pack", "wait": "negotiate", "exchange": "exchange"}


def _seconds(spans):
    """{kind: mean seconds per step and rank} over the sampled steps."""
    lengths = spans["end_seconds"] - spans["begin_seconds"]
    steps = len(set(zip(spans["step"].tolist(), spans["rank"].tolist())))
    kinds, lanes = spans["kind"], spans["lane"]
    return {
        kind: float(lengths[(kinds == kind) & ((lanes == lane) if lane else True)].sum()) / steps
        for kind, lane, *_ in PARTS
    }


def _of_cell(cell):
    """{kind: seconds}, the mean over the blocks that kept spans; None if none did."""
    found = [
        _seconds(spans)
        for trial in cell.trials.values()
        if (spans := trial.series("spans.npy")) is not None and len(spans)
    ]
    return {kind: sum(one[kind] for one in found) / len(found) for kind in LOOKS} if found else None


def _stack(axes, place, parts, scale):
    """Draws one bar, and writes the share of waiting in it."""
    bottom = 0.0
    for kind, look in LOOKS.items():
        axes.bar(place, parts[kind] * scale, 0.62, bottom=bottom, **style.work(look))
        bottom += parts[kind] * scale
    whole = sum(parts.values())
    if whole > 0 and parts["wait"] / whole > 0.12:
        share = f"{100 * parts['wait'] / whole:.0f}{wording.THIN}%"
        middle = (parts["pack"] + parts["wait"] / 2) * scale
        axes.annotate(share, (place, middle), ha="center", va="center", fontsize=7, color="white")


def _frame(axes, labels, head, rest):
    style.groups_of_bars(axes, labels, edge=0.6)
    axes.set_xlabel(wording.axis("sparsifier"))
    style.thousands(axes.yaxis)
    style.panel_title(axes, head, rest)


def waiting(experiment, part, figure, styles):
    """Draws a panel for each method and setting of ours, and a panel for a paper's numbers."""
    chosen = part.shown(figure)
    times = {cell.hash: found for cell in chosen if (found := _of_cell(cell))}
    if not times:
        raise selection.NoData(f"no trial of part '{part.id}' counts that kept spans")
    panels = selection.panels(part, figure)
    printed = papers.Published(figure)
    rows = [row for row in printed.rows if row.value is not None and row.metric.startswith("time:")]
    count = len(panels) + bool(rows)
    made, places = style.panels(count, 3, 2.3)
    for panel, axes in zip(panels, places):
        inside = panel.cells
        ordered = sorted(inside, key=lambda cell: str(cell.get("sparsifier")))
        longest = max(
            (sum(times[cell.hash].values()) for cell in inside if cell.hash in times), default=0
        )
        scale, unit = wording.seconds_scale(longest)
        for place, cell in enumerate(ordered):
            if cell.hash in times:
                _stack(axes, place, times[cell.hash], scale)
            else:
                style.write_failure(axes, place, cell.failure() or "no spans")
        axes.set_ylabel(wording.axis("step_and_rank", unit))
        names = [str(cell.get("sparsifier")) for cell in ordered]
        _frame(axes, names, f"{inside[0].method}, {panel.head}", panel.rest)
    if rows:
        axes = places[-1]
        names = sorted({row.fields["sparsifier"] for row in rows}, key=str.lower)
        unit = rows[0].unit
        for place, name in enumerate(names):
            mine = [row for row in rows if row.fields["sparsifier"] == name]
            parts = {
                kind: sum(row.value for row in mine if row.metric.startswith(f"time:{theirs}"))
                for kind, _, _, theirs in PARTS
            }
            _stack(axes, place, parts, 1.0)
        axes.set_facecolor("#f6f8fa")
        axes.set_ylabel(wording.axis("trace", unit))
        _frame(axes, names, f"Published: {printed.artifacts}", rows[0].setting)
    handles = [style.work_patch(LOOKS[kind], words) for kind, _, words, _ in PARTS]
    title = figure.get("title") or "Copying, waiting and exchange of fused buffers, by sparsifier"
    text = caption(
        chosen,
        "Bars: sums of the spans of a step and rank, mean over the sampled steps, ranks and blocks; "
        "numbers in the bars are the share of waiting. Waits and exchanges overlap one "
        "another and computation: their sum is no step time.",
        f"{printed.source} The paper's times are sums over a trace of unknown length: only "
        "the shares can be compared."
        if rows
        else "",
    )
    return Drawn(made, title, text, handles)
