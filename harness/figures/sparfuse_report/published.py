"""Holds the published values that are drawn with ours: the rows of a figure's entry, which the harness
has read and placed (harness/report/figures/panels.hpp)."""


class Row:
    """One published number. `value` is None if the paper gives a range."""

    def __init__(self, fields):
        self.fields, self.value = fields, fields["number"]
        self.name = fields["name"]  # ours of the method, or the paper's
        self.metric, self.unit, self.setting = fields["metric"], fields["unit"], fields["setting"]
        self.workload, self.from_text = fields["of"], fields["from_text"]
        self.calibrated, self.stated = fields["calibrated"], bool(fields.get("stated"))


class Published:
    """The published numbers of a figure's entry; falsy if it has none."""

    def __init__(self, figure):
        given = figure.get("published") or {}
        self.rows = [Row(fields) for fields in given.get("rows", [])]
        self.source, self.artifacts = given.get("source", ""), given.get("artifacts", "")
        self.elsewhere = given.get("elsewhere", "")  # how the paper's setting differs from ours

    def __bool__(self):
        return bool(self.rows)

    def of(self, workload):
        """The rows for our workload, without stated gains."""
        return [row for row in self.rows if row.workload in (None, workload) and not row.stated]
