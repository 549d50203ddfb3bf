"""Lays out panels and their axes, the same for every kind of bars."""

from sparfuse_report import wording


def arrange(panels, widest):
    """Rows are workloads; the rest goes into columns, at most `widest`."""
    workloads = []
    for fields, _ in panels:
        if fields.get("workload") not in workloads:
            workloads.append(fields.get("workload"))
    rows = []
    for workload in workloads:
        row = [panel for panel in panels if panel[0].get("workload") == workload]
        rows += [row[start : start + widest] for start in range(0, len(row), widest)]
    return rows


def write_failure(axes, x, text, colour):
    axes.annotate(
        f"{text} ",
        (x, 0),
        xytext=(0, 3),
        textcoords="offset points",
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=6,
        color=colour,
    )


def tick_words(key, value, cell=None):
    """A tick of the axis `key`; `cell` tells the unshaped link from a declared cluster's own."""
    if key == "link":
        if value is None and cell is not None and wording.declared_cluster(cell.config):
            return "the cluster's"
        return wording.link({"link": {"gbps": value} if isinstance(value, float) else value})
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def axis_words(key):
    return {
        "workers": "Workers",
        "link": "Link",
        "density": "Density",
        "workload": "Workload",
        "method": "Method",
        "label": "Method",
        "sparsifier": "Sparsifier",
        "method_options.planner_options.degree": "Fusion degree",
    }.get(key, key.split(".")[-1].replace("_", " ").capitalize())
