"""Draws marks that say how a number was obtained, and their entries in a legend."""

import math

import matplotlib.patheffects as effects
from matplotlib.patches import Patch

from sparfuse_report import style

_EDGES: dict[str, tuple[str, dict]] = {  # {mode: (words, look) of the edges of bars}
    "modelled": ("broken", {"linestyle": (0, (2.2, 1.1)), "linewidth": 0.7}),
    "emulated": ("thin", {"linestyle": "-", "linewidth": 0.6}),
    "measured": ("thick", {"linestyle": "-", "linewidth": 1.4}),
}
_ONLY_PUBLISHED = ("", "////", "....", "\\\\\\\\", "++++", "oo", "**")
_HALO = [effects.Stroke(linewidth=2.6, foreground="white"), effects.Normal()]
CALIBRATED = "calibration input: not judged"


def bar(look, mode):
    """The look of one of our bars."""
    return {**look.bar(), **(_EDGES[mode][1] if mode in _EDGES else {})}


def only_published(position):
    """The look of a bar of a method that only the paper has."""
    return {
        "facecolor": "white",
        "edgecolor": style.QUIET,
        "linewidth": 0.8,
        "hatch": _ONLY_PUBLISHED[position % len(_ONLY_PUBLISHED)],
    }


_OPEN = {"linestyle": "", "markerfacecolor": "white", "markeredgecolor": style.INK}
_DOT = {"marker": "o", **_OPEN}
_TICK = {"color": style.INK, "linewidth": 1.5}
_TEXT = {"marker": "D", "markersize": 3.6, "markeredgewidth": 0.9, **_OPEN}
_CROSS = {"marker": "x", "markersize": 4.4, "markeredgewidth": 1.2, "color": style.INK, "linestyle": ""}


def whisker(axes, place, value, low, high):
    look = {"color": style.INK, "elinewidth": 0.9, "capsize": 1.8, "capthick": 0.9, "zorder": 4}
    axes.errorbar(place, value, [[value - low], [high - value]], **look)


def dots(axes, place, width, values):
    count = len(values)
    places = [place + width * ((i + 0.5) / count - 0.5) * 0.6 for i in range(count)]
    axes.plot(places, values, markersize=1.9, markeredgewidth=0.45, zorder=5, **_DOT)


def level(axes, height, label=""):
    """Draws a line at the height that bars are compared with, and its name outside of the data."""
    axes.axhline(height, color=style.QUIET, linewidth=0.9, zorder=0.9)
    if label:
        style.note(axes, label, (1, height), (2, 0), xycoords=("axes fraction", "data"),
                   fontsize=6.8, color=style.QUIET, va="center", annotation_clip=False)


def slope(axes, place, lines, dodge, ratios, look, modelled):
    """Draws the line number `place` of `lines` lines over the whole numbers, set apart by `dodge` at most.
    ratios: (value, low, high) or None for each number. Returns how far the line is shifted."""
    shift = (place - (lines - 1) / 2) * min(dodge, 0.4 / lines)
    hollow = {"markerfacecolor": "white"} if modelled else {}
    xs = [x + shift for x in range(len(ratios))]
    axes.plot(xs, [ratio[0] if ratio else math.nan for ratio in ratios], marker=look.marker, **hollow,
              **look.line())
    for x, ratio in zip(xs, ratios):
        if ratio and ratio[1] is not None:
            axes.plot([x, x], ratio[1:], color=look.colour, linewidth=0.8)
    return shift


def limits(ratios, least):
    """(low, high) of a logarithmic axis for 1 and the ratios, [(value, low, high)]. It reaches at most one
    span of the values, or `least` in logarithms, beyond them: a longer interval is cut."""
    values = [1.0, *(value for value, *_ in ratios)]
    low, high = min(values), max(values)
    span = max(math.log(high / low), least)
    ends = [*values, *(end for _, *both in ratios if both[0] for end in both)]
    return max(min(ends), low * math.exp(-span)), min(max(ends), high * math.exp(span))


def dot_handle(label):
    return style.entry(label, markersize=2.6, markeredgewidth=0.6, **_DOT)


class Marks:
    """Draws published values, and remembers which marks a legend must explain."""

    def __init__(self):
        self._handles, self._modes = {}, []

    def mode(self, mode):
        if mode in _EDGES and mode not in self._modes:
            self._modes.append(mode)

    def _explain(self, label, look):
        self._handles.setdefault(label, style.entry(label, **look))

    def value(self, axes, place, width, height, row):
        """Draws a published number over the slot [place - width / 2, place + width / 2]."""
        if row.calibrated:
            axes.plot(place, height, zorder=7, path_effects=_HALO, **_CROSS)
            self._explain(CALIBRATED, _CROSS)
        elif row.from_text:
            self.text(axes, place, height)
        else:
            ends = [place - width / 2, place + width / 2]
            axes.plot(ends, [height, height], solid_capstyle="butt", path_effects=_HALO,
                      zorder=3.5, **_TICK)  # below whiskers and dots, not to hide them
            self._explain("published, from its figure", _TICK)

    def text(self, axes, place, height):
        axes.plot(place, height, zorder=7, **_TEXT)
        self._explain("published, stated in the text", _TEXT)

    def imported(self, axes, place, width, height):
        """Draws an imported result over the slot: a line with end ticks, which grey print also shows."""
        ends = [place - width / 2, place + width / 2]
        look = {"color": style.IMPORTED, "linewidth": 1.8, "marker": "|", "markersize": 6}
        axes.plot(ends, [height, height], path_effects=_HALO, zorder=3.6, **look)

    def handles(self):
        """The legend's entries for the marks and the modes of bars that were drawn."""
        edges = [
            Patch(label=f"{mode}: {words} edge", facecolor="white", edgecolor=style.INK, **look)
            for mode, (words, look) in ((mode, _EDGES[mode]) for mode in self._modes)
        ]
        return list(self._handles.values()) + edges
