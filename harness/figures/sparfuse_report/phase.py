"""Draws which method trains fastest over the network's bandwidth and the number of workers, from
what `sparfuse advise --phase` found."""

from matplotlib.patches import Patch, Rectangle

from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn

ROW = 0.55  # inches of a row of points
LABEL_SIZE = 7


def drawings(found):
    return [(f"phase-{wording.workload(found['workload'])}-on-{found['cluster']}", draw(found))]


def _write(axes, x, y, point, look):
    """Writes the winner's name, and its speed as a multiple of dense."""
    over = point["over_dense"]
    words = point["winner"]
    if over and point["winner"] != "dense":
        words += f"\n{wording.number(over)}{wording.THIN}x dense"
    face = style.matplotlib.colors.to_rgb(look.colour)
    dark = sum(part * weight for part, weight in zip(face, (0.299, 0.587, 0.114))) < 0.55  # luminance
    box = {"facecolor": look.colour, "edgecolor": "none", "pad": 1.2}
    axes.text(x, y, words, ha="center", va="center_baseline", fontsize=LABEL_SIZE,
              color="white" if dark else style.INK, bbox=box, zorder=4)


def draw(found):
    """Draws a cell for each point in the colour of its winner, hatched if draws do not decide."""
    points = found["points"]
    columns = sorted({point["workers"] for point in points})
    rows = sorted({point["inter_node_gbps"] for point in points})
    methods = {point["winner"] for point in points}
    styles = style.Styles(methods)
    made, grid = style.figure(1, 1, ROW * len(rows) + 0.6)
    axes = grid[0, 0]
    for point in points:
        x, y = columns.index(point["workers"]), rows.index(point["inter_node_gbps"])
        hatch = "///" if point["undecided"] else ""
        look = {"facecolor": styles[point["winner"]].colour, "edgecolor": "white", "linewidth": 1.2}
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, hatch=hatch, **look))
        _write(axes, x, y, point, styles[point["winner"]])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.grid(False)
    axes.set_xticks(range(len(columns)), [str(each) for each in columns])
    axes.set_yticks(range(len(rows)), [f"{each:g}" for each in rows])
    axes.set_xlabel(wording.axis("workers"))
    axes.set_ylabel(wording.axis("card_bandwidth", "Gbit/s"))
    handles = [Patch(label=name, facecolor=styles[name].colour) for name in styles.sort(methods)]
    if any(point["undecided"] for point in points):
        look = {"facecolor": "white", "edgecolor": style.QUIET, "hatch": "///"}
        handles.append(Patch(label="undecided with another", **look))
    workload = wording.workload(found["workload"])
    text = (
        f"Setting: {workload}, batch {found['batch_per_worker']} a worker, density "
        f"{found['density']:g}, cluster {found['cluster']} with "
        f"{found['inter_node_gbps']:g} Gbit/s declared. Modelled: "
        f"{wording.MODE_MEANS['modelled']}. Each point shows the method that is fastest by declared "
        f"values. Hatched: within the band of {found['draws']} draws of the cluster's inputs "
        "another method is as fast; only methods whose steps are at most twice as long are considered."
    )
    return Drawn(made, f"Which method trains {workload} fastest", text, handles)
