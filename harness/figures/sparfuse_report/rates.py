"""Draws which rate of a network card each method needs for a utilisation, from what `sparfuse
advise --utilisation` found."""

from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn

HEIGHT = 2.6  # inches


def drawings(found):
    return [(f"utilisation-{wording.workload(found['workload'])}-on-{found['cluster']}", draw(found))]


def draw(found):
    """Draws a line for each method through the rates of those utilisations that some rate reaches."""
    methods = [each["method"] for each in found["methods"]]
    styles = style.Styles(methods)
    made, grid = style.figure(1, 1, HEIGHT)
    axes = grid[0, 0]
    never, handles = [], {}
    percents = [100 * wanted for wanted in found["utilisations"]]
    for each in found["methods"]:
        name = each["method"]
        points = [(gbps, percent) for gbps, percent in zip(each["gbps"], percents) if gbps is not None]
        if not points:
            never.append(name)
            continue
        look = styles[name]
        (handles[name],) = axes.plot(*zip(*points), marker=look.marker, markersize=4, label=name, **look.line())
    axes.set_xscale("log")
    axes.set_xlabel(wording.axis("card_bandwidth", "Gbit/s"))
    axes.set_ylabel("utilisation, %")
    axes.set_yticks(percents)
    workload = wording.workload(found["workload"])
    text = (
        f"Setting: {workload}, batch {found['batch_per_worker']} a worker, {found['workers']} "
        f"workers, density {found['density']:g}, cluster {found['cluster']}. Modelled: "
        f"{wording.MODE_MEANS['modelled']}. Lines: the lowest rate of a network card at which forward, "
        "backward and update are this part of a step. A line ends if no rate is enough."
    )
    if never:
        text += f" No rate is enough for half of a step: {', '.join(never)}."
    title = f"The bandwidth that {workload} needs"
    return Drawn(made, title, text, [handles[name] for name in styles.sort(handles)])
