"""Makes the content of the page of two systems: the result of `sparfuse compare`."""

from sparfuse_report import wording
from sparfuse_report.cells import Interval, text_of, value_of
from sparfuse_report.page import anchor_of
from sparfuse_report.web import table
from sparfuse_report.web.forest import Scale
from sparfuse_report.web.store import common_setting, modes_and_metrics

LOOKS = {"first": "place-first", "second": "place-second", "agree": "good"}


class Compared:
    """A cell of an experiment with its numbers on two systems."""

    def __init__(self, store, pair, fields):
        first, second = pair["systems"]
        identity = fields["experiment"], fields["part"], fields["config_hash"]
        self.fields = fields
        self.cell = store.cell(first, *identity) or store.cell(second, *identity)
        self.ratios = [Interval.of(fields[f"{side}_ratio"]) for side in ("first", "second")]
        self.quotient = Interval.of(fields["first_over_second"])
        self.absolutes = [Interval.of(fields[f"{side}_absolute"]) for side in ("first", "second")]

    @property
    def blocks(self):
        return [ratio.n if ratio else 0 for ratio in self.ratios]

    def verdict(self):
        fields, verdict = self.fields, self.fields["verdict"]
        words = f"larger on {fields[verdict]}" if verdict in ("first", "second") else verdict
        needed, plans = fields["blocks_needed"], fields["plans"]
        return [
            (words, LOOKS.get(verdict, "quiet")),
            *table.quiet(needed and f"{needed} blocks of each may tell"),
            *table.quiet(fields["why_not"]),
            *table.quiet(plans and f"plans differ: {plans}"),
        ]


def shown(store, pair):
    parts = {}
    for fields in pair["cells"]:
        each = Compared(store, pair, fields)
        parts.setdefault((fields["experiment"], fields["part"]), []).append(each)
    regimes = {(each["experiment"], each["part"]): each["table"] for each in pair["regimes"]}
    return {
        "kind": "pairs",
        "title": store.pair(pair).words,
        "facts": [f"ratios to {store.reference}"],
        "pair": pair,
        "parts": [(*part, regimes[part], _groups(store, pair, rows)) for part, rows in parts.items()],
    }


def _groups(store, pair, rows):
    return [
        _group(store, pair, [row for row in rows if (row.cell.mode, row.cell.metric) == of])
        for of in modes_and_metrics(store, [row.cell for row in rows])
    ]


def _ratio(store, pair, place):
    """The column of one system's ratios, with the number of blocks in which the reference moved."""
    moved_in = f"{('first', 'second')[place]}_moved"

    def lines(row):
        moved = row.fields[moved_in]
        said = f"{store.reference} moved in {len(moved)} of {wording.count(row.blocks[place], 'block')}"
        return [(text_of(row.ratios[place]), ""), *table.quiet(moved and said)]

    title = f"{pair['sides'][place]['name']} vs {store.reference}"
    return table.Column(title, lines, lambda row: value_of(row.ratios[place]), "lines")


def _absolute(pair, place):
    def lines(row):
        value = row.absolutes[place]
        return table.quiet(value and value.text)

    title = f"{pair['sides'][place]['name']} absolute"
    return table.Column(title, lines, lambda row: value_of(row.absolutes[place]), "lines")


def _group(store, pair, rows):
    cell, common = rows[0].cell, common_setting([row.cell for row in rows])
    scale = Scale([ratio for row in rows for ratio in row.ratios])
    columns = [
        table.pages(store, "method", lambda row: row.cell.method),
        table.pages(store, "workload", lambda row: row.cell.workload),
        table.number("workers", lambda row: row.cell.workers),
        table.Column("setting", lambda row: row.cell.words(common), kind="setting"),
        _ratio(store, pair, 0),
        _ratio(store, pair, 1),
        table.drawing(scale, lambda row: row.ratios),
        table.Column("quotient", lambda row: text_of(row.quotient), lambda row: value_of(row.quotient)),
        table.Column("verdict", Compared.verdict, look="lines", kind="setting"),
        table.Column("n", lambda row: ", ".join(map(str, row.blocks)), lambda row: min(row.blocks)),
        _absolute(pair, 0),
        _absolute(pair, 1),
    ]
    if not any(row.cell.words(common) for row in rows):
        columns = [column for column in columns if column.title != "setting"]
    name = anchor_of(cell.experiment, cell.part, cell.mode, cell.metric)
    return table.Group(cell.metric, cell.mode, common, table.Table(name, columns, rows, table.look_of(cell.mode)))
