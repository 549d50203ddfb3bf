"""Draws marks that say how a number was obtained, and their entries in a legend."""

import matplotlib.patheffects as effects
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sparfuse_report import style

_EDGES = {  # of bars
    "modelled": {"linestyle": (0, (2.2, 1.1)), "linewidth": 0.7},
    "emulated": {"linestyle": "-", "linewidth": 0.6},
    "measured": {"linestyle": "-", "linewidth": 1.4},
}
_EDGE_WORDS = {
    "modelled": "modelled: broken edge",
    "emulated": "emulated: thin edge",
    "measured": "measured: thick edge",
}
_ONLY_PUBLISHED = ("", "////", "....", "\\\\\\\\", "++++", "oo", "**")
_HALO = [effects.Stroke(linewidth=2.6, foreground="white"), effects.Normal()]
CALIBRATED = "calibration input: not judged"


def bar(look, mode):
    """The look of one of our bars."""
    return {**look.bar(), **_EDGES.get(mode, {})}


def only_published(position):
    """The look of a bar of a method that ours do not have."""
    return {
        "facecolor": "white",
        "edgecolor": style.QUIET,
        "linewidth": 0.8,
        "hatch": _ONLY_PUBLISHED[position % len(_ONLY_PUBLISHED)],
    }


_DOT = {
    "marker": "o",
    "linestyle": "",
    "markerfacecolor": "white",
    "markeredgecolor": style.INK,
}


def whisker(axes, place, value, low, high):
    axes.errorbar(
        place,
        value,
        [[value - low], [high - value]],
        color=style.INK,
        elinewidth=0.9,
        capsize=1.8,
        capthick=0.9,
        zorder=4,
    )


def dots(axes, place, width, values):
    axes.plot(
        [place + width * ((i + 0.5) / len(values) - 0.5) * 0.6 for i in range(len(values))],
        values,
        markersize=1.9,
        markeredgewidth=0.45,
        zorder=5,
        **_DOT,
    )


def level(axes, height, label=""):
    """A line under the bars at what they are compared with; its name outside of the data."""
    axes.axhline(height, color=style.QUIET, linewidth=0.9, zorder=0.9)
    if label:
        axes.annotate(
            label,
            (1, height),
            xycoords=("axes fraction", "data"),
            xytext=(2, 0),
            textcoords="offset points",
            fontsize=6.8,
            color=style.QUIET,
            va="center",
            annotation_clip=False,
        )


def dot_handle(label):
    return Line2D([], [], markersize=2.6, markeredgewidth=0.6, label=label, **_DOT)


class Marks:
    """Draws published values, and remembers which marks a legend must explain."""

    def __init__(self):
        self._handles, self._modes = {}, []

    def mode(self, mode):
        if mode in _EDGES and mode not in self._modes:
            self._modes.append(mode)

    def value(self, axes, place, width, height, row, calibrated=False):
        """A published number over the slot [place - width / 2, place + width / 2]."""
        if calibrated:
            self._calibrated(axes, place, width, height)
        elif row.from_text:
            self.text(axes, place, height)
        else:
            self._tick(axes, place, width, height)

    def _line(self, axes, place, width, height, **look):
        axes.plot(
            [place - width / 2, place + width / 2],
            [height, height],
            color=style.INK,
            linewidth=1.5,
            solid_capstyle="butt",
            path_effects=_HALO,
            zorder=3.5,  # below whiskers and dots, which it would hide
            **look,
        )

    def _tick(self, axes, place, width, height):
        self._line(axes, place, width, height)
        self._handles.setdefault(
            "published, from its figure",
            Line2D([], [], color=style.INK, linewidth=1.5, label="published, from its figure"),
        )

    def text(self, axes, place, height):
        look = {
            "marker": "D",
            "linestyle": "",
            "markersize": 3.6,
            "markerfacecolor": "white",
            "markeredgecolor": style.INK,
            "markeredgewidth": 0.9,
        }
        axes.plot(place, height, zorder=7, **look)
        self._handles.setdefault(
            "text", Line2D([], [], label="published, stated in the text", **look)
        )

    def _calibrated(self, axes, place, width, height):
        look = {
            "marker": "x",
            "markersize": 4.4,
            "markeredgewidth": 1.2,
            "color": style.INK,
            "linestyle": "",
        }
        axes.plot(place, height, zorder=7, path_effects=_HALO, **look)
        self._handles.setdefault(CALIBRATED, Line2D([], [], label=CALIBRATED, **look))

    def imported(self, axes, place, width, height):
        """A result of others over the slot; like a beam lying on its side, to be told in grey."""
        axes.plot(
            [place - width / 2, place + width / 2],
            [height, height],
            color=style.IMPORTED,
            linewidth=1.8,
            marker="|",
            markersize=6,
            path_effects=_HALO,
            zorder=3.6,
        )

    def handles(self):
        """Entries for the marks drawn; modes only where bars of several stand together."""
        edges = [
            Patch(label=_EDGE_WORDS[mode], facecolor="white", edgecolor=style.INK, **_EDGES[mode])
            for mode in self._modes
        ]
        return list(self._handles.values()) + edges
