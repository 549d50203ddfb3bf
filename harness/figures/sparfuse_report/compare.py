"""Draws the results of `sparfuse compare`: ratios of two systems side by side, or of several as slopes.
Absolute values are not drawn."""

import hashlib
import re
import textwrap

from sparfuse_report import marks, style, wording
from sparfuse_report.drawn import Drawn

ROW = 0.24  # inches of a method's row
MARK = 0.08  # inches more for each mark beyond two
SPREAD = 0.6  # the part of a row over which its marks are spread
PANEL = 2.2  # inches of a panel of slopes
DODGE = 0.04  # distance of methods' lines, as a part of the way between two systems
NAME = 16  # letters in a line of a system's name
LETTERS = 90  # letters of all names beside one another; names of more are turned
SECOND = "#b3362b"
FIRST = "#1f4fa3"
PLAN = "#8a5a00"


def file_name(experiment, part):
    """A file name for each pair; a digest distinguishes names with characters that a file cannot have."""
    name = f"compare-{experiment}-{part}"
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name)
    if safe == name and "-" not in part:
        return safe
    digest = hashlib.sha256("\n".join((experiment, part)).encode()).hexdigest()
    return f"{safe[:150]}-{digest[:8]}"


def _by(cells, *keys):
    """The cells as {values of the keys: cells}, in their order."""
    groups = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    return groups


def parts_of(found):
    """[(experiment, part, its cells)], in the order of the cells."""
    return [(*part, cells) for part, cells in _by(found["cells"], "experiment", "part").items()]


def _settings(cells):
    """The cells as {setting: cells}."""
    return {setting: of_setting for (setting,), of_setting in _by(cells, "setting").items()}


def _title(setting, cells):
    """The setting, with the mode of its numbers first: no panel has two modes."""
    modes = {cell["config"].get("mode", "") for cell in cells}
    mode = ", ".join(sorted(filter(None, modes)))
    rest = setting.removeprefix(f"mode {mode}, ")
    return f"{mode}: {rest}" if mode else rest


def _limits(cells):
    """The ends of the axis for the ratios and intervals of all panels."""
    least, most = marks.limits([
        _ends(ratio) for cell in cells
        for ratio in (cell["first_ratio"], cell["second_ratio"], _carried(cell), _forced(cell)[0])
        if ratio
    ], 0.1)
    return least / 1.04, most * 1.04


def _ends(ratio):
    return ratio["value"], ratio["low"], ratio["high"]


def label(cell, cells):
    """The method's name. If several cells have the method, also its sparsifier and density, and the
    options in which cells with the same sparsifier and density differ."""
    config = cell["config"]
    alike = [each["config"] for each in cells if each["config"]["method"] == config["method"]]
    if len(alike) == 1:
        return config["method"]
    words = [str(config.get("sparsifier")), f"{config.get('density'):g}"]
    flats = [_options(each) for each in alike
             if all(each.get(key) == config.get(key) for key in ("sparsifier", "density"))]
    own = _options(config)
    for key in sorted(set().union(*flats)):
        if any(flat.get(key) != own.get(key) for flat in flats):
            words.append(f"{key.rpartition('.')[2]} {_short(own.get(key))}")
    return f"{config['method']} ({', '.join(words)})"


def _options(config):
    return wording.flatten({key: config.get(key) for key in ("method_options", "sparsifier_options", "feedback",
                                                     "feedback_options")})


def _short(value, most=20):
    text = str(value)
    return text if len(text) <= most else text[:most] + "..."


def _point(axes, y, ratio, colour, marker):
    if ratio is None:
        return
    low = ratio["low"] if ratio["low"] is not None else ratio["value"]
    high = ratio["high"] if ratio["high"] is not None else ratio["value"]
    axes.plot([low, high], [y, y], color=colour, linewidth=1.1)
    axes.plot([ratio["value"]], [y], color=colour, marker=marker, markersize=4, linestyle="none")


def _carried(cell):
    """The first system's ratio as the model carries it over to the other; None if nobody asked for it."""
    return (cell.get("transported") or {}).get("ratio")


def _forced(cell):
    """(the second system's ratio with the plan of another system, whether it was measured)."""
    forced = cell.get("second_forced") or {}
    return (forced["measured"], True) if forced.get("measured") else (forced.get("modelled"), False)


def _hollow(axes, x, y, colour, marker):
    """Draws a value of the model as a hollow mark."""
    axes.plot([x], [y], color=colour, marker=marker, markersize=4.5, markerfacecolor="white",
              markeredgewidth=0.9, linestyle="none")


def _modelled_point(axes, y, ratio, colour, marker):
    if ratio is None:
        return
    if ratio["low"] is not None:
        axes.plot([ratio["low"], ratio["high"]], [y, y], color=colour, linewidth=0.8,
                  linestyle=(0, (2.2, 1.1)))
    _hollow(axes, ratio["value"], y, colour, marker)


def verdict(cell):
    if cell["verdict"] == "first":
        return f"larger on {cell['first']}", FIRST
    if cell["verdict"] == "second":
        return f"larger on {cell['second']}", SECOND
    return cell["verdict"], style.QUIET


def draw_pair(found, experiment, part, cells):
    """Draws a panel for each setting: each method's ratio on both systems, and the verdict."""
    settings = _settings(cells)
    most = max(len(each) for each in settings.values())
    marks = max(2 + bool(_carried(cell)) + bool(_forced(cell)[0]) for cell in cells)
    made, grid = style.figure(len(settings), 1, (ROW + MARK * (marks - 2)) * most + 0.5, sharex=True)
    first, second = (side["name"] for side in found["sides"])
    for axes, (setting, each) in zip(grid[:, 0], settings.items()):
        rows = sorted(each, key=lambda cell: (cell["first_ratio"] or {"value": 0})["value"])
        for y, cell in enumerate(rows):
            ratio, measured = _forced(cell)
            each_mark = [(_point, cell["first_ratio"], FIRST, "o"), (_point, cell["second_ratio"], SECOND, "D"),
                     (_modelled_point, _carried(cell), SECOND, "D"),
                     (_point if measured else _modelled_point, ratio, PLAN, "s")]
            drawn = [mark for i, mark in enumerate(each_mark) if i < 2 or mark[1]]
            for i, (draw_one, *mark) in enumerate(drawn):
                draw_one(axes, y + SPREAD * (0.5 - i / (len(drawn) - 1)), *mark)
            words, colour = verdict(cell)
            axes.annotate(words, (1.01, y), xycoords=("axes fraction", "data"), va="center",
                          fontsize=6.5, color=colour, annotation_clip=False)
        axes.axvline(1, color=style.INK, linewidth=0.7)
        axes.set_yticks(range(len(rows)), [label(cell, each) for cell in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.grid(axis="x")
        axes.grid(axis="y", visible=False)
        axes.set_title(_title(setting, each), loc="left", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(_limits(cells))
    style.few_ticks(axes.xaxis)
    axes.set_xlabel(wording.axis("ratio_in_blocks", reference=found["reference"]))
    handles = [
        style.entry(f"{side['name']}: {side['hardware']}", color=colour, marker=marker, markersize=4)
        for side, colour, marker in zip(found["sides"], (FIRST, SECOND), ("o", "D"))
    ]
    if any(_carried(cell) for cell in cells):
        handles.append(style.entry(
            f"{first} carried over to {second}: modelled", color=SECOND, marker="D", markersize=4.5,
            markerfacecolor="white", linestyle=(0, (2.2, 1.1)), linewidth=0.8))
    plans = {measured for ratio, measured in map(_forced, cells) if ratio}
    giver = next((cell["second_forced"]["plan_of"] for cell in cells if cell.get("second_forced")), "")
    for measured in sorted(plans, reverse=True):
        how, face = ("measured", PLAN) if measured else ("modelled", "white")
        handles.append(style.entry(
            f"{second} with the plan of {giver}: {how}", color=PLAN, marker="s", markersize=4.5,
            linestyle="none", markerfacecolor=face))
    return Drawn(made, f"{experiment}/{part}: {first} and {second}", _caption(found, cells), handles)


def _lines(cells):
    """{label: (method, mode, {system: ratio}, {system: the first one's ratio, carried over by the
    model})} of a setting's cells."""
    lines = {}
    for cell in cells:
        alike = [each for each in cells if each["second"] == cell["second"]]
        config = cell["config"]
        line = lines.setdefault(label(cell, alike), (config["method"], config.get("mode"), {}, {}))
        line[2].update({cell["first"]: cell["first_ratio"], cell["second"]: cell["second_ratio"]})
        if _carried(cell):
            line[3][cell["second"]] = _carried(cell)
    return lines


def draw_slopes(found, experiment, part, cells):
    """Draws a panel for each setting: a line for each method over the systems, with a gap if one
    system has no ratio."""
    settings = _settings(cells)
    names = [side["name"] for side in found["sides"]]
    methods = {cell["config"]["method"] for cell in cells}
    styles = style.Styles(methods)
    made, grid = style.figure(len(settings), 1, PANEL, sharex=True, sharey=True)
    for axes, (setting, each) in zip(grid[:, 0], settings.items()):
        lines = _lines(each)
        for place, (words, (method, mode, at, carried)) in enumerate(lines.items()):
            look = styles[method]
            ratios = [at[name] and _ends(at[name]) if name in at else None for name in names]
            shift = marks.slope(axes, place, len(lines), DODGE, ratios, look, mode == "modelled")
            for name, ratio in carried.items():
                _hollow(axes, names.index(name) + shift, ratio["value"], look.colour, look.marker)
            last = max((x for x, ratio in enumerate(ratios) if ratio), default=None)
            if words != method and last is not None:  # other lines of the method look the same
                style.note(axes, words, (last + shift, ratios[last][0]), (5, 0), va="center", fontsize=6,
                           annotation_clip=False)
        axes.axhline(1, color=style.INK, linewidth=0.7)
        axes.set_ylabel(wording.axis("ratio", reference=found["reference"]))
        axes.set_title(_title(setting, each), loc="left", fontsize=8)
    axes.set_xlim(-0.3, len(names) - 0.7)
    ticks = [textwrap.fill(name, NAME) for name in names]
    crowded = sum(max(map(len, tick.split("\n")), default=0) for tick in ticks) > LETTERS
    turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(names)), ticks, **turned)
    axes.set_yscale("log")
    axes.set_ylim(_limits(cells))
    for axes in grid[:, 0]:
        style.few_ticks(axes.yaxis)
        axes.tick_params(labelbottom=axes is grid[-1, 0] or not crowded)
    title = f"{experiment}/{part} on {len(names)} systems"
    return Drawn(made, title, _caption(found, cells), styles.lines(methods))


def _caption(found, cells):
    hardware = "; ".join(f"{side['name']}: {side['hardware']}" for side in found["sides"])
    ratios = [cell[side] for cell in cells for side in ("first_ratio", "second_ratio") if cell[side]]
    modelled = any(cell["config"].get("mode") == "modelled" for cell in cells)
    carried = any(_carried(cell) or _forced(cell)[0] for cell in cells)
    return (
        f"{hardware}. Ratios to {found['reference']} within each block, with 95 % intervals over "
        f"blocks ({wording.blocks([ratio['n'] for ratio in ratios])}); systems are judged by the "
        f"interval of the difference of logarithms, ratios less than {100 * found['within']:g} % "
        "apart agree. Absolute values are not compared."
        + (" No verdict counts modelled ratios." if modelled or carried else "")
        + (" Hollow marks are modelled, with the model's band." if carried else "")
    )


def drawings(found):
    """[(file name, figure)] of each part."""
    return [
        (file_name(experiment, part), draw(found, experiment, part, cells))
        for experiment, part, cells in parts_of(found)
    ]


def draw(found, experiment, part, cells):
    return (draw_pair if len(found["sides"]) == 2 else draw_slopes)(found, experiment, part, cells)
