"""Gives every figure its look: fixed order, colours, hatches, markers and line styles for methods,
and the frame (title, legend and caption outside of the data). Readable in grey: colours differ in
luminance, and no two methods share both marker and line style."""

import itertools
import re
import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

from sparfuse_report import wording  # noqa: E402

INK = "#1f2328"
QUIET = "#57606a"
GRID = "#d8dee4"
ALARM = "#9b1c1c"
IMPORTED = "#c400c4"  # L 46: results of others, whatever their method

# {method: colour (its CIE lightness in the comment), hatch, marker, dashes}. A family shares hue and
# hatch. The hatch gets denser and the colour lighter the less of the system a method has, so that bars
# differ in grey. Squares mark measured points.
_METHODS = {
    "dense": ("#24292f", "", "o", (None, None)),  # L 16
    "horovod-fusion": ("#8c959f", "//", "D", (5, 1.6)),  # L 61
    "fp16": ("#eade91", "||||", "d", (2, 2)),  # L 88
    "qsgd": ("#b8ad4e", "|||", "d", (4, 1, 1, 1)),  # L 70
    "signsgd": ("#857e2b", "||", "d", (1, 1)),  # L 52
    "wfbp": ("#1f4fa3", "", "^", (3.2, 1.4)),  # L 34
    "syncea": ("#b3362b", "\\\\", "v", (5, 1.4, 1.2, 1.4)),  # L 41
    "safusion-naive": ("#98e0c7", "....", "P", (1.4, 1.1)),  # L 84
    "safusion-inter": ("#47af91", "...", "*", (1.6, 0.8, 1.6, 2.4)),  # L 65
    "safusion": ("#007d60", "..", "X", (3.2, 1.2, 1.2, 1.2, 1.2, 1.2)),  # L 46
    "ssfusion-naive": ("#e1c8fa", "xxxx", "h", (1.2, 1.6)),  # L 84
    "ssfusion-o": ("#bf9de3", "xxx", "H", (3, 2, 1, 2)),  # L 70
    "ssfusion-i": ("#9c75c9", "xx", "8", (6, 2)),  # L 56
    "ssfusion": ("#7750a9", "x", "p", (8, 1.4)),  # L 42
    "adtopk": ("#ffcfa4", "-----", "<", (1, 2.2)),  # L 88
    "adtopk-i": ("#ffa966", "----", ">", (2.2, 1.2)),  # L 77
    "adtopk-t": ("#eb8739", "---", "<", (4.2, 2.2)),  # L 66
    "adtopk-p": ("#c76c22", "--", ">", (5, 1, 1, 1, 1, 1)),  # L 55
    "adtopk-h": ("#9e551a", "-", "<", (9, 1.2, 2, 1.2)),  # L 44
    "mg-wfbp": ("#5f6b76", "OO", "D", (2.4, 1)),  # L 45
    "omgs-fixed": ("#d08fb4", "***", "d", (1.6, 1.6)),  # L 67
    "omgs": ("#a03a6e", "**", "d", (3, 1, 1, 1)),  # L 41
    "cupcake": ("#3f8fb0", "++", "h", (5, 1, 1, 1)),  # L 56
    "gtopk": ("#c5dc8f", "ooo", ">", (1, 1.4)),  # L 84
    "topk-dsa": ("#97b34f", "oo", "v", (2.4, 1.2)),  # L 69
    "oktopk": ("#637d1f", "o", "H", (7, 1.2)),  # L 49
    "sparcml": ("#6b4f2a", "|-", "^", (4.5, 1, 1, 1)),  # L 36
    "spardl": ("#b9976a", "+-", "^", (1.4, 1.4)),  # L 64
    "omnireduce": ("#86d3e6", "\\\\\\", "p", (2.2, 1.6)),  # L 80
    "zen": ("#cf3d6b", "", "D", (8, 1.4, 1.2, 1.4)),  # L 49
    "powersgd": ("#5f62a6", "//|", "8", (3, 1.2)),  # L 44
    "ps": ("#7a9a97", "O", "p", (2.4, 2.4)),  # L 61
    "bsp-ps": ("#33534f", "O.", "h", (6, 1.2, 1.2, 1.2)),  # L 33
}
_OTHERS = (
    ("#a8c686", "oo", "<", (2.4, 1)),
    ("#6b4f2a", "||", ">", (4.5, 1, 1, 1)),
    ("#e58fb1", "++", "p", (1, 1.6)),
    ("#3d6f74", "\\\\", "d", (6, 1, 2, 1)),
    ("#c9b458", "//", "H", (2, 2)),
    ("#5b4bb5", "..", "8", (9, 2)),
    ("#d97b3f", "--", "1", (1.2, 0.8)),
    ("#93b7be", "xx", "2", (3, 3)),
)

# {component of a step, or kind of its spans: (colour, hatch)}.
_WORK = {
    "forward": ("#33475b", ""),
    "backward": ("#7fa3c7", ""),
    "pack": ("#8a6d3b", ""),
    "sparsify": ("#f2b134", "///"),
    "decompress": ("#f7e3a1", "..."),
    "exchange": ("#b3362b", ""),
    "exposed_communication": ("#b3362b", "\\\\\\"),
    "negotiate": ("#5d2a7a", ""),
    "update": ("#4f8a5b", "xxx"),
    "outer": ("#9fc9a5", "..."),
    "wait": ("#ffffff", "////"),
    "other": ("#e6e8eb", ""),
}

RC: dict = {  # {group or groups of Matplotlib's settings: values}
    ("figure", "savefig"): {"dpi": 150},
    "font": {"family": "DejaVu Sans", "size": 8},
    "text": {"color": INK, "parse_math": False},  # names may have a $
    "axes": {
        "titlesize": 8.5, "titlelocation": "left", "titleweight": "normal", "labelsize": 8, "labelcolor": INK,
        "edgecolor": QUIET, "linewidth": 0.7, "spines.top": False, "spines.right": False, "grid": True,
        "grid.axis": "y", "axisbelow": True,
    },
    "grid": {"color": GRID, "linewidth": 0.6},
    ("xtick", "ytick"): {"color": INK, "labelsize": 7.5, "major.size": 3, "major.width": 0.7},
    "lines": {"linewidth": 1.4, "markersize": 5},
    "hatch": {"linewidth": 0.5},
    "legend": {"frameon": False, "fontsize": 7.5},
    "pdf": {"fonttype": 42},
    "svg": {"fonttype": "path"},
    "path": {"simplify": True},
}
for _groups, _values in RC.items():
    matplotlib.rc(_groups, **_values)  # type: ignore[arg-type]

WIDTH = 7.2  # inches, the width of two columns of a paper


class MethodStyle:
    def __init__(self, colour, hatch, marker, dashes):
        self.colour, self.hatch, self.marker, self.dashes = colour, hatch, marker, dashes

    def bar(self):
        return {"facecolor": self.colour, "edgecolor": INK, "hatch": self.hatch, "linewidth": 0.6}

    def line(self):
        look = {"dashes": self.dashes} if self.dashes[0] else {"linestyle": "-"}
        return {"color": self.colour, **look}


def _other(position):
    """The look of a series outside of _METHODS, unlike the looks of all others. When colours begin
    again, they are paler and have other hatches, markers and dashes."""
    count = len(_OTHERS)
    again, at = divmod(position, count)
    colour = matplotlib.colors.to_rgb(_OTHERS[at][0])
    paler = [1 - (1 - part) * 0.55**again for part in colour]
    of = [_OTHERS[(at + turn * again) % count] for turn in (1, 2, 3)]
    return MethodStyle(matplotlib.colors.to_hex(paler), of[0][1], of[1][2], of[2][3])


class Styles:
    """Order and look of methods (or of any other series), the same for all figures of a report."""

    def __init__(self, methods):
        unknown = sorted({str(method) for method in methods if method not in _METHODS})
        self.order = [method for method in _METHODS if method in methods] + unknown
        self.looks = {name: MethodStyle(*look) for name, look in _METHODS.items()}
        for position, name in enumerate(unknown):
            self.looks[name] = _other(position)

    def __getitem__(self, name):
        return self.looks[str(name)]

    def sort(self, names):
        """The names in the order of `order`, since the experiment file's must not change a figure."""
        return sorted(set(names), key=self.order.index)

    def lines(self, names):
        """The legend's entries of lines with markers, in the order of `order`."""
        looks = ((name, self[name]) for name in self.sort(names))
        return [entry(name, marker=look.marker, **look.line()) for name, look in looks]

    def points(self, names, **more):
        """The legend's entries of markers without lines, in the order of `order`."""
        looks = ((name, self[name]) for name in self.sort(names))
        return [
            entry(name, linestyle="", marker=look.marker, color=look.colour, **more) for name, look in looks
        ]


def work(kind):
    colour, hatch = _WORK.get(kind, ("#c0c5ca", ""))
    return {"facecolor": colour, "edgecolor": INK, "hatch": hatch, "linewidth": 0.4}


def work_patch(kind, label=None):
    return Patch(label=label or kind, **work(kind))


def thousands(axis):
    def words(value, _):
        return f"{value:,.10g}".replace(",", wording.THIN)

    axis.set_major_formatter(matplotlib.ticker.FuncFormatter(words))


def few_ticks(axis, of_decade=(1, 2, 5)):
    """Puts ticks at `of_decade` in each decade of a logarithmic axis, whose limits are set; at more
    numbers if the axis has less than a decade."""
    low, high = axis.get_view_interval()
    subs = of_decade if high >= 10 * low else (1, 1.5, 2, 3, 4, 5, 7)
    axis.set_major_locator(matplotlib.ticker.LogLocator(10, subs=subs))
    axis.set_minor_locator(matplotlib.ticker.NullLocator())
    thousands(axis)


def figure(rows, columns, panel_height, width=WIDTH, **keywords):
    """A grid of panels; `finish` adds the frame's height on top of these."""
    size = (width, rows * panel_height)
    made, axes = plt.subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained", **keywords)
    made.get_layout_engine().set(w_pad=0.06, h_pad=0.06, wspace=0.03, hspace=0.04)
    return made, axes


def panels(count, columns, panel_height, **keywords):
    """(figure, its axes): `count` panels in rows of at most `columns`."""
    columns = min(columns, count)
    made, grid = figure(-(-count // columns), columns, panel_height, **keywords)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return made, list(grid.flat[:count])


def rows_of_workloads(found, widest, panel_height, width_of=lambda panel: 1, **keywords):
    """(figure, [(panels, their axes)]): a row has one workload and at most `widest` panels. Columns are
    as wide, in relation to one another, as the widest of their panels by `width_of`."""
    rows = []
    for workload in dict.fromkeys(panel.head for panel in found):
        row = [panel for panel in found if panel.head == workload]
        rows += [row[start : start + widest] for start in range(0, len(row), widest)]
    columns = itertools.zip_longest(*rows)
    ratios = {"width_ratios": [max(width_of(panel) for panel in column if panel) for column in columns]}
    made, grid = figure(len(rows), len(ratios["width_ratios"]), panel_height, gridspec_kw=ratios, **keywords)
    for row, axes_row in zip(rows, grid):
        for axes in axes_row[len(row) :]:
            axes.set_visible(False)
    return made, list(zip(rows, grid))


def groups_of_bars(axes, words, edge=0.5):
    """Names the groups along the axis, one at each whole number."""
    axes.set_xlim(-edge, len(words) - 1 + edge)
    axes.set_xticks(range(len(words)), words)
    axes.tick_params(axis="x", length=0)


def rows_down(axes, names):
    """Names rows, one at each whole number, the first on top, and turns the grid."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)


def entry(label, **look):
    """A legend's entry: a line or a marker."""
    return Line2D([], [], label=label, **look)


def note(axes, text, at, offset, **look):
    """Writes a text `offset` points from the place `at`."""
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **look)


def write_failure(axes, x, why):
    """Writes the reason for a missing bar at its place, upwards."""
    colour = QUIET if why in ("not run", "exactly 0", "no spans") else ALARM
    look = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 6, "color": colour}
    note(axes, f"{why} ", (x, 0), (0, 3), **look)


def panel_title(axes, head, rest):
    """Writes two lines over a panel: its subject, and under it the rest of its setting."""
    axes.set_title(rest, loc="center", fontsize=7.2, color=QUIET, pad=3.5, x=0, ha="left")
    if head:
        look = {"fontsize": 8.2, "fontweight": "bold", "annotation_clip": False}
        note(axes, head, (0, 1), (0, 13.5 if rest else 4), xycoords="axes fraction", **look)


def finish(made, title, handles=(), caption=""):
    """Adds title, legend and caption above and below the panels without taking their room."""
    width, height = made.get_size_inches()
    renderer = made.canvas.get_renderer()
    margin, gap = 0.08, 0.05

    def inches(artist):
        return artist.get_window_extent(renderer).height / made.dpi

    def wrap(text, size, weight="normal"):
        probe = made.text(0, 0, text, fontsize=size, fontweight=weight)
        wide = probe.get_window_extent(renderer).width / made.dpi
        probe.remove()
        room = int(len(text) * (width - 2 * margin) / wide * 0.97) if wide else len(text)
        text = re.sub(
            r"(n) = (\d+)(?: (?=blocks|cells|seeds|block\b|seed\b|steps?\b))?",
            lambda found: f"n\u00a0=\u00a0{found[2]}" + ("\u00a0" if found[0][-1] == " " else ""),
            text,
        )
        text = re.sub(r"(\d) %", "\\1\u00a0%", text)
        return "\n".join(textwrap.wrap(text, max(room, 20), break_on_hyphens=False))

    heading = made.text(0, 0, wrap(title, 10, "bold"), fontsize=10, fontweight="bold", va="top")
    note = legend = None
    if caption:
        look = {"fontsize": 6.8, "color": QUIET, "va": "bottom", "linespacing": 1.35}
        note = made.text(0, 0, wrap(caption, 6.8), **look)
    if handles:
        for columns in range(len(handles), 0, -1):
            legend = made.legend(
                handles=handles, loc="upper left", ncols=columns, borderaxespad=0, borderpad=0,
                columnspacing=1.6, handlelength=2.4, handletextpad=0.6)
            legend.set_in_layout(False)
            wide = legend.get_window_extent(renderer).width / made.dpi
            if columns == 1 or wide < width - 2 * margin:
                break
            legend.remove()
    top = margin + inches(heading) + gap + (inches(legend) + gap + 0.03 if legend else 0)
    bottom = inches(note) + margin + gap if note else margin
    total = top + height + bottom
    made.set_size_inches(width, total)
    heading.set_position((margin / width, 1 - margin / total))
    if legend:
        corner = (margin / width, 1 - (margin + inches(heading) + gap + 0.03) / total)
        legend.set_bbox_to_anchor(corner, transform=made.transFigure)
    if note:
        note.set_position((margin / width, margin / total))
        note.set_in_layout(False)
    heading.set_in_layout(False)
    made.get_layout_engine().set(rect=(0, bottom / total, 1, height / total))
    made.draw_without_rendering()  # places the panels, so that their titles can be measured
    for axes in made.axes:
        title_width = axes.title.get_window_extent(renderer).width if axes.get_visible() else 0
        if title_width and title_width > axes.bbox.width:
            axes.title.set_fontsize(axes.title.get_fontsize() * axes.bbox.width / title_width)


def write(made, folder, name):
    """Writes PNG, PDF and SVG; equal data give equal SVG and PDF bytes. Returns the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context({"svg.hashsalt": name}):
        undated = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
        for kind, metadata in undated.items():
            path = folder / f"{name}.{kind}"
            made.savefig(path, metadata=metadata)
            paths.append(path)
    return paths


def close(made):
    plt.close(made)
