"""Reads results of others that were imported. They are drawn with ours in a colour of their own;
nothing is divided by them or judged by them."""

from sparfuse_report import cells, style

BEYOND = 3  # times our highest bar: a higher number would flatten our bars, and stays in the table


class Result:
    def __init__(self, fields, results):
        self.system, self.source = fields["system"], fields["source"]
        self.metrics, self.doubt = fields["metrics"], fields["doubt"]
        self.trials = [cells.Trial(trial, results) for trial in fields["trials"]]

    def value(self, metric):
        return self.metrics[metric]["value"] if metric in self.metrics else None


class Beside:
    """The imported results that fit the cells of one figure, and the drawn ones among them."""

    def __init__(self, part):
        given = part.imported.get("results") or []
        self._results = [Result(fields, part.experiment.results) for fields in given]
        self._drawn, self._beyond = [], []

    def of(self, cell, metric, most=None):
        """[(result, value)] of the cell's setting, as the harness has found them
        (harness/report/figures/panels.hpp). Values above `most`, and results in doubt, are
        left to the table."""
        found = []
        for result in (self._results[i] for i in cell.imported):
            value = result.value(metric)
            if value is None:
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
