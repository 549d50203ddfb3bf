"""Draws what `sparfuse compare` found: ratios of two systems side by side, or of several as slopes.
Absolute values are not drawn."""

from matplotlib.lines import Line2D

import style
from drawn import Drawn

ROW = 0.24  # inches of a method
PANEL = 2.2  # inches of a panel of slopes
VERDICTS = {
    "agree": "agree",
    "undecided": "undecided",
    "not comparable": "not comparable",
}
SECOND = "#b3362b"
FIRST = "#1f4fa3"


def file_name(experiment, part):
    return f"compare-{experiment}-{part}".replace("/", "-").replace(" ", "-")


def parts_of(found):
    """[(experiment, part, cells)], in the order of the cells."""
    parts = {}
    for cell in found["cells"]:
        parts.setdefault((cell["experiment"], cell["part"]), []).append(cell)
    return [(experiment, part, cells) for (experiment, part), cells in parts.items()]


def _settings(cells):
    """{setting: cells}"""
    settings = {}
    for cell in cells:
        settings.setdefault(cell["setting"], []).append(cell)
    return settings


def _label(cell, cells):
    """The method, with its sparsifier and density where several cells are of it."""
    config = cell["config"]
    alike = [each for each in cells if each["config"]["method"] == config["method"]]
    if len(alike) == 1:
        return config["method"]
    return f"{config['method']} ({config.get('sparsifier')}, {config.get('density'):g})"


def _point(axes, y, ratio, colour, marker):
    if ratio is None:
        return
    low = ratio["low"] if ratio["low"] is not None else ratio["value"]
    high = ratio["high"] if ratio["high"] is not None else ratio["value"]
    axes.plot([low, high], [y, y], color=colour, linewidth=1.1)
    axes.plot([ratio["value"]], [y], color=colour, marker=marker, markersize=4, linestyle="none")


def _verdict(cell):
    if cell["verdict"] == "first":
        return f"larger on {cell['first']}", FIRST
    if cell["verdict"] == "second":
        return f"larger on {cell['second']}", SECOND
    return VERDICTS[cell["verdict"]], style.QUIET


def draw_pair(found, experiment, part, cells):
    """A panel a setting: of each method the ratio on either system, and what that decides."""
    settings = _settings(cells)
    most = max(len(each) for each in settings.values())
    made, grid = style.figure(len(settings), 1, ROW * most + 0.5)
    first, second = (side["name"] for side in found["sides"])
    for axes, (setting, each) in zip(grid[:, 0], settings.items()):
        rows = sorted(each, key=lambda cell: (cell["first_ratio"] or {"value": 0})["value"])
        for y, cell in enumerate(rows):
            _point(axes, y + 0.13, cell["first_ratio"], FIRST, "o")
            _point(axes, y - 0.13, cell["second_ratio"], SECOND, "D")
            words, colour = _verdict(cell)
            axes.annotate(words, (1.01, y), xycoords=("axes fraction", "data"), va="center",
                          fontsize=6.5, color=colour, annotation_clip=False)
        axes.axvline(1, color=style.INK, linewidth=0.7)
        axes.set_yticks(range(len(rows)), [_label(cell, each) for cell in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.grid(axis="x")
        axes.grid(axis="y", visible=False)
        axes.set_title(setting, loc="left", fontsize=8)
    grid[-1, 0].set_xlabel(f"Ratio to {found['reference']} within each block")
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4, label=f"{name}: {side['hardware']}")
        for name, side, colour, marker in zip(
            (first, second), found["sides"], (FIRST, SECOND), ("o", "D")
        )
    ]
    return Drawn(made, f"{experiment}/{part}: {first} and {second}", _caption(found), handles)


def draw_slopes(found, experiment, part, cells):
    """A panel a setting: a line a method over the systems."""
    settings = _settings(cells)
    names = [side["name"] for side in found["sides"]]
    methods = {cell["config"]["method"] for cell in cells}
    styles = style.Styles(methods)
    made, grid = style.figure(len(settings), 1, PANEL)
    for axes, (setting, each) in zip(grid[:, 0], settings.items()):
        lines = {}
        for cell in each:
            points = lines.setdefault(_label(cell, [c for c in each if c["second"] == cell["second"]]),
                                      {"method": cell["config"]["method"], "at": {}})
            points["at"][cell["first"]] = cell["first_ratio"]
            points["at"][cell["second"]] = cell["second_ratio"]
        for line in lines.values():
            look = styles[line["method"]]
            there = [(names.index(name), ratio) for name, ratio in line["at"].items() if ratio]
            there.sort(key=lambda point: point[0])
            axes.plot([x for x, _ in there], [ratio["value"] for _, ratio in there],
                      marker=look.marker, **look.line())
            for x, ratio in there:
                if ratio["low"] is not None:
                    axes.plot([x, x], [ratio["low"], ratio["high"]], color=look.colour,
                              linewidth=0.8)
        axes.axhline(1, color=style.INK, linewidth=0.7)
        axes.set_xlim(-0.3, len(names) - 0.7)
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel(f"Ratio to {found['reference']}")
        axes.set_title(setting, loc="left", fontsize=8)
    handles = [
        Line2D([], [], label=name, marker=styles[name].marker, **styles[name].line())
        for name in styles.sort(methods)
    ]
    return Drawn(made, f"{experiment}/{part} on {len(names)} systems", _caption(found), handles)


def _caption(found):
    hardware = "; ".join(f"{side['name']}: {side['hardware']}" for side in found["sides"])
    return (
        f"{hardware}. Ratios to {found['reference']} within each block, with 95 % intervals over "
        "blocks; systems are judged by the interval of the difference of logarithms, ratios less "
        f"than {100 * found['within']:g} % apart agree. Absolute values are not "
        "compared."
    )


def draw(found, experiment, part, cells):
    return (draw_pair if len(found["sides"]) == 2 else draw_slopes)(found, experiment, part, cells)
