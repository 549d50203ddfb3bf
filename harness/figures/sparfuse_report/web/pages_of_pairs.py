"""Makes a page a pair of systems: what `sparfuse compare` says of them."""

from sparfuse_report import wording
from sparfuse_report.cells import Interval
from sparfuse_report.page import anchor_of, escape, plain_table
from sparfuse_report.web import frame, index, results
from sparfuse_report.web.forest import Scale
from sparfuse_report.web.frame import look_of, mode_badge
from sparfuse_report.web.store import common_setting
from sparfuse_report.web.table import Column, table


class Compared:
    """A cell of two systems."""

    def __init__(self, store, pair, fields):
        first, second = pair["systems"]
        identity = fields["experiment"], fields["part"], fields["config_hash"]
        self.fields = fields
        self.cell = store.cell(first, *identity) or store.cell(second, *identity)
        self.first, self.second = (Interval.of(fields[f"{side}_ratio"]) for side in ("first", "second"))
        self.quotient = Interval.of(fields["first_over_second"])
        self.absolutes = [Interval.of(fields[f"{side}_absolute"]) for side in ("first", "second")]

    @property
    def blocks(self):
        return [ratio.n if ratio else 0 for ratio in (self.first, self.second)]


def pages_of(store):
    for pair in store.pairs:
        yield store.pair(pair).path(), _page(store, pair)


def _page(store, pair):
    parts = {}
    for fields in pair["cells"]:
        each = Compared(store, pair, fields)
        parts.setdefault((fields["experiment"], fields["part"]), []).append(each)
    sections = [("summary", "What is compared", [], _summary(store, pair))]
    for (experiment, part), rows in parts.items():
        body = f"<p>Trials, and the other systems: {store.experiment(experiment).html('../')}</p>"
        body += _regimes(store, pair, experiment, part)
        for mode in store.modes:
            body += _tables_of_mode(store, pair, mode, [row for row in rows if row.cell.mode == mode])
        name = f"{experiment}: {part}" if part else experiment
        sections.append((anchor_of("part", experiment, part), name, [], body))
    if pair["differences"]:
        sections.append(("differences", "What is not the same", [], _differences(pair)))
    within = ("pairs", index.HEADINGS["pairs"])
    return frame.site_page(
        store, store.pair(pair).words, [f"ratios to {store.reference}"], sections, within=within
    )


def _summary(store, pair):
    rows = "".join(
        f"<dt>{_look(place)} {store.system(key).html('../')}</dt><dd>{escape(side['hardware'])}</dd>"
        for place, key, side in zip(("first", "second"), pair["systems"], pair["sides"])
    )
    said = "".join(f"<p>{escape(sentence)}.</p>" for sentence in [*pair["hardware"], *pair["summary"]])
    return f"<dl>{rows}</dl>{said}"


def _regimes(store, pair, experiment, part):
    """How the reference's step divides in each setting: what says whether ratios answer one question."""
    settings = [each for each in pair["settings"] if (each["experiment"], each["part"]) == (experiment, part)]
    heads = ["setting"]
    for side in pair["sides"]:
        heads += [f"{side['name']}: communication", "drift", "links"]
    rows = []
    for each in settings:
        row = [each["setting"] or wording.NONE]
        for regime in each["regimes"]:
            known = regime["communication"] is not None
            row.append(f"{regime['communication']:.3g}" if known else wording.NONE)
            row.append(wording.NONE if regime["drift"] is None else f"{100 * regime['drift']:.1f} %")
            row.append(regime["links"] or wording.NONE)
        rows.append(row)
    if not rows:
        return ""
    said = (
        f"Communication that {store.reference} exposes over the rest of its step, and how far its step "
        "drifts over blocks: where the first is far apart on the two, no verdict stands."
    )
    return f"<p class='quiet'>{escape(said)}</p>{plain_table(heads, rows)}"


def _look(place):
    """A mark as in the drawings."""
    point = "<circle class='point' cx='7' cy='7' r='4'/>"
    if place == "second":
        point = "<path class='point' d='M7 2l5 5l-5 5l-5 -5z'/>"
    svg = "<svg class='forest' width='14' height='14' aria-hidden='true'>"
    return f"{svg}<g class='{place}'>{point}</g></svg>"


def _verdict(row):
    fields = row.fields
    words = {side: f"larger on {fields[side]}" for side in ("first", "second")}
    looks = {"first": "place-first", "second": "place-second", "agree": "good"}
    verdict = fields["verdict"]
    look = looks.get(verdict, "quiet")
    out = [f"<span class='{look}'>{escape(words.get(verdict, verdict))}</span>"]
    if fields["blocks_needed"]:
        out.append(f"<span class='quiet'>{fields['blocks_needed']} blocks of each may tell</span>")
    if fields["why_not"]:
        out.append(f"<span class='quiet'>{escape(fields['why_not'])}</span>")
    if fields["plans"]:
        out.append(f"<span class='quiet'>plans differ: {escape(fields['plans'])}</span>")
    return "<br>".join(out)


def _ratio(title, of, moved=lambda row: ""):
    return Column(
        title,
        lambda row: escape(wording.ratio(of(row))) + moved(row),
        lambda row: of(row).value if of(row) else None,
    )


def _moved(store, side):
    """Of a ratio in whose blocks the reference moved: in how many."""

    def words(row):
        moved = row.fields[f"{side}_moved"]
        if not moved:
            return ""
        of = results.count(row.blocks[("first", "second").index(side)], "block")
        return f"<br><span class='quiet'>{escape(store.reference)} moved in {len(moved)} of {of}</span>"

    return words


def _absolute(title, place):
    def words(row):
        value = row.absolutes[place]
        if value is None:
            return ""
        return f"<span class='quiet'>{escape(wording.with_interval(value, row.fields['unit']))}</span>"

    return Column(
        title, words, lambda row: row.absolutes[place].value if row.absolutes[place] else None
    )


def _tables_of_mode(store, pair, mode, rows):
    return "".join(
        _table(store, pair, mode, metric, [row for row in rows if row.cell.metric == metric])
        for metric in sorted({row.cell.metric for row in rows}, reverse=True)
    )


def _table(store, pair, mode, metric, rows):
    scale = Scale([ratio for row in rows for ratio in (row.first, row.second)])
    common = common_setting([row.cell for row in rows])
    first, second = (side["name"] for side in pair["sides"])
    columns = [
        Column("method", lambda row: store.method(row.cell.method).html("../")),
        Column("workload", lambda row: store.workload(row.cell.workload).html("../")),
        Column("workers", lambda row: str(row.cell.workers), lambda row: row.cell.workers),
        Column("setting", lambda row: escape(row.cell.words(common)), kind="setting"),
        _ratio(f"{first} vs {store.reference}", lambda row: row.first, _moved(store, "first")),
        _ratio(f"{second} vs {store.reference}", lambda row: row.second, _moved(store, "second")),
        Column(
            "drawn",
            lambda row: scale.drawn(row.first, row.second),
            lambda row: row.first.value if row.first else None,
            head=scale.axis(),
            kind="drawing",
        ),
        _ratio("quotient", lambda row: row.quotient),
        Column("verdict", _verdict, kind="setting"),
        Column("n", lambda row: ", ".join(map(str, row.blocks)), lambda row: min(row.blocks)),
        _absolute(f"{first} absolute", 0),
        _absolute(f"{second} absolute", 1),
    ]
    if not any(row.cell.words(common) for row in rows):
        columns = [column for column in columns if column.title != "setting"]
    where = rows[0].fields["experiment"], rows[0].fields["part"]
    said = ", ".join(f"{key} {text}" for key, text in common)
    return (
        f"<h3>{escape(wording.metric_name(metric))} {mode_badge(mode)}</h3>"
        + (f"<p class='quiet'>All of them: {escape(said)}.</p>" if said else "")
        + table(anchor_of(*where, mode, metric), columns, rows, kind=lambda _: look_of(mode))
    )


def _differences(pair):
    names = [side["name"] for side in pair["sides"]]
    rows = [
        (
            each["name"],
            *(value or wording.NONE for value in each["values"]),
            "; ".join(each["cells"]) or "yes" if each["hidden"] else "",
        )
        for each in pair["differences"]
    ]
    return plain_table(["recorded", *names, "differs within one, too"], rows)
