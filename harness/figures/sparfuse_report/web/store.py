"""Holds the content of data.json by subject of pages, and the names of their files."""

import hashlib
from dataclasses import dataclass

from sparfuse_report.cells import Interval
from sparfuse_report.page import anchor_of

MODES = ("measured", "emulated", "modelled", "imported")  # the order of tables on a page


def file_name(name):
    """A file name that is safe in every file system and unique to `name`. Characters other than small
    letters, digits and hyphens become hyphens; digits of the name's hash then make it unique."""
    slug = anchor_of(name)[:60]
    if slug and slug == name:
        return slug
    return "-".join(filter(None, (slug, hashlib.sha256(name.encode()).hexdigest()[:8])))


@dataclass(frozen=True)
class Link:
    """A page of the site, by its folder and its subject's name."""

    folder: str
    name: str
    words: str

    def path(self):
        return f"{self.folder}/{file_name(self.name)}.html"


class Cell:
    """A configuration of a part on one system."""

    def __init__(self, fields):
        self.fields = fields
        self.ratio, self.absolute = Interval.of(fields["ratio"]), Interval.of(fields["absolute"])

    def __getattr__(self, name):
        try:
            return self.fields[name]
        except KeyError as missing:
            raise AttributeError(name) from missing

    @property
    def anchor(self):
        return anchor_of("c", self.part, self.config_hash[:12], self.system)

    @property
    def reference_anchor(self):
        return anchor_of("c", self.part, self.reference[:12], self.system) if self.reference else ""

    def words(self, common=()):
        """The words that tell the cell from others of its workload and workers, as "link 1 Gbit/s".
        Pairs (key, text) of `common` are left out."""
        said = (f"{key} {text}" for key, text in self.setting if (key, text) not in common)
        return ", ".join(said)


def common_setting(cells):
    """[(key, text)] of the keys with one value in all cells that have the key. If there are several
    cells, at least two must have it. Not all need it, since dense cells have no sparsifier."""
    values = {}
    for cell in cells:
        for key, text in cell.setting:
            values.setdefault(key, []).append(text)
    return [
        (key, texts[0])
        for key, texts in values.items()
        if len(texts) >= min(2, len(cells)) and len(set(texts)) == 1
    ]


def modes_and_metrics(store, cells):
    """(mode, metric) of each table on a page of these cells, in the order of the tables."""
    for mode in store.modes:
        for metric in sorted({cell.metric for cell in cells if cell.mode == mode}, reverse=True):
            yield mode, metric


class Store:
    def __init__(self, data):
        self.data = data
        self.reference, self.preliminary_below = data["reference"], data["preliminary_below"]
        self.within = data["within"]
        self.systems = {system["key"]: system for system in data["systems"]}
        self.methods = {method["name"]: method["listed"] or {} for method in data["methods"]}
        self.workloads = {each["name"]: each["listed"] or {} for each in data["workloads"]}
        self.runs, self.pairs, self.several = data["runs"], data["pairs"], data["several"]
        self.experiments = sorted({run["experiment"] for run in self.runs})
        self.cells = [Cell(fields) for fields in data["cells"]]
        self._by_identity = {
            (cell.system, cell.experiment, cell.part, cell.config_hash): cell for cell in self.cells
        }
        present = {cell.mode for cell in self.cells}
        self.modes = [mode for mode in MODES if mode in present] + sorted(present - set(MODES))

    def cells_of(self, **wanted):
        return [
            cell
            for cell in self.cells
            if all(cell.fields[key] == value for key, value in wanted.items())
        ]

    def cell(self, system, experiment, part, config_hash):
        """The cell of that identity; None if there is none."""
        return self._by_identity.get((system, experiment, part, config_hash))

    def runs_of(self, **wanted):
        return [run for run in self.runs if all(run[key] == value for key, value in wanted.items())]

    def page(self, kind, name):
        """The page of a "system", by its key, or of a "method", a "workload" or an "experiment"."""
        return Link(f"{kind}s", name, self.systems[name]["name"] if kind == "system" else name)

    def pair(self, pair):
        """The page of two systems; its name joins both keys."""
        first, second = (self.systems[key]["name"] for key in pair["systems"])
        return Link("pairs", " ".join(pair["systems"]), f"{first} and {second}")
