"""Reads results of others that were imported. They are drawn with ours in a colour of their own;
nothing is divided by them or judged by them."""

import re

from sparfuse_report import cells, style, wording

BEYOND = 3  # times our highest bar: a higher number would flatten our bars, and stays in the table


def plain(name):
    """A sparsifier's name without origin, remark, case and punctuation: "gaussiank"."""
    return re.sub(r"[^a-z0-9]", "", re.split(r"[@(]", str(name))[0].lower())


class Result:
    def __init__(self, fields, results):
        self.fields, self.system, self.source = fields, fields["system"], fields["source"]
        self.workload = wording.workload(fields["workload"])
        self.metrics, self.doubt = fields["metrics"], fields["doubt"]
        self.trials = [cells.Trial(trial, results) for trial in fields["trials"]]

    def value(self, metric):
        return self.metrics[metric]["value"] if metric in self.metrics else None

    def fits(self, cell):
        """Whether the setting that the source states is the cell's; unstated fields fit any cell."""
        if (self.fields["method"], self.workload) != (cell.method, cell.workload):
            return False
        pairs = [
            (self.fields["workers"], cell.workers),
            (self.fields["batch_per_worker"], cell.get("batch_per_worker")),
            (self.fields["network_gbps"], cell.get("link_gbps")),
        ]
        if not cell.dense:
            pairs.append((self.fields["density"], cell.density))
            sparsifier = self.fields["sparsifier"]
            pairs.append((sparsifier and plain(sparsifier), plain(cell.get("sparsifier"))))
        return all(theirs is None or ours is None or theirs == ours for theirs, ours in pairs)


class Beside:
    """The imported results that fit the cells of one figure, and the drawn ones among them."""

    def __init__(self, part):
        given = part.imported.get("results") or []
        self._results = [Result(fields, part.experiment.results) for fields in given]
        self._drawn, self._beyond = [], []

    def of(self, cell, metric, most=None):
        """[(result, value)] of the cell's setting. Values above `most`, and results in doubt, are
        left to the table."""
        found = []
        for result in self._results:
            value = result.value(metric)
            if value is None or not result.fits(cell):
                continue
            if result.doubt or (most is not None and value > most):
                self._beyond.append(result)
            else:
                self._drawn.append(result)
                found.append((result, value))
        return found

    def words(self):
        """The caption's words: the sources, and the number of results not drawn; "" without any."""
        sources = dict.fromkeys(
            f"{result.system} ({result.source.rstrip('.')})" for result in self._drawn
        )
        said = []
        if sources:
            said.append(f"Imported, compared with nothing: {'; '.join(sources)}.")
        if self._beyond:
            said.append(
                f"{len(self._beyond)} imported number{'s are' if len(self._beyond) > 1 else ' is'} "
                "in the table alone: in doubt, or far above the axis."
            )
        return " ".join(said)

    def handles(self, points=False):
        """The legend's entry: a beam over a bar or a curve's line, or points with methods' markers."""
        look = {"linewidth": 1.8, "marker": "|", "markersize": 6}
        if points:
            look = {"linestyle": "", "marker": "o", "markersize": 5}
        return [style.entry("imported", color=style.IMPORTED, **look)] if self._drawn else []
