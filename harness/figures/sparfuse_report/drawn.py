"""Holds what a figure kind hands back, lists the numbers that it drew, and words its caption: how its
numbers were obtained, on what, and what spreads mean."""

from dataclasses import dataclass

from matplotlib.patches import Rectangle

from sparfuse_report import wording


@dataclass
class Drawn:
    figure: object  # Matplotlib's figure
    title: str
    caption: str
    handles: list  # entries of the legend, which style.finish places


def numbers(drawn):
    """The content of each panel: bars as [left, bottom, width, height] and lines as [xs, ys], in the
    units of the axes, and the words on them."""
    panels = []
    for axes in drawn.figure.axes:
        boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        bars = [(*box.get_xy(), box.get_width(), box.get_height()) for box in boxes]
        lines = [(line.get_xdata(), line.get_ydata()) for line in axes.lines]
        panels.append({
            "title": axes.get_title(),
            "x": axes.get_xlabel(),
            "y": axes.get_ylabel(),
            "bars": [[float(each) for each in bar] for bar in bars],
            "lines": [[[float(each) for each in end] for end in line] for line in lines],
            "words": [text.get_text() for text in axes.texts if text.get_text()],
        })
    return {"title": drawn.title, "caption": drawn.caption, "panels": panels}


def _modes(cells):
    """Sentences on mode and hardware of the trials behind `cells`."""
    machines = {}  # {mode: hardware}
    for mode in ("measured", "emulated", "modelled"):
        names = {line for cell in cells if cell.mode == mode for line in cell.hardware}
        if names:
            machines[mode] = " and ".join(sorted(names))
    one = len(set(machines.values())) == 1
    sentences = [
        f"{mode.capitalize()}: {wording.MODE_MEANS[mode]}"
        + ("." if one else f"; {'from' if mode == 'modelled' else 'on'} {machine}.")
        for mode, machine in machines.items()
    ]
    if one:
        name = next(iter(machines.values()))
        sentences.append(
            f"Modelled from {name}." if set(machines) == {"modelled"} else f"Hardware: {name}."
        )
    return " ".join(sentences)


def _links(cells):
    """The shaped and the modelled links in full; panels name them by their speed alone."""
    sentences = []
    for word, modes_of in (("Shaped", ("measured", "emulated")), ("Modelled link", ("modelled",))):
        found = {
            (cell.config["link"].get("gbps", 0), cell.link_in_full)
            for cell in cells
            if cell.config.get("link") and cell.mode in modes_of
        }
        if found:
            sentences.append(f"{word}: {'; '.join(words for _, words in sorted(found))}.")
    return " ".join(sentences)


def _sample(cells):
    """n, and "preliminary" if timed cells have too few blocks for a trustworthy interval."""
    timed = [cell.n for cell in cells if cell.n and cell.mode != "modelled"]
    modelled = [cell.n for cell in cells if cell.n and cell.mode == "modelled"]
    words = []
    if timed:
        words.append(wording.blocks(timed) + ("." if not modelled else " (timed)."))
    if modelled:
        seeds = wording.blocks(modelled).replace("block", "seed")
        if any(cell.mean("step_uncertainty") is not None for cell in cells):
            how = "computed; intervals follow from the profile's errors of measurement"
        elif any(cell.declared for cell in cells):
            how = "computed; intervals follow from the ranges of the cluster's inputs"
        else:
            how = "computed, so without an interval"
        words.append(
            f"{seeds} (modelled; {how})." if max(modelled) == 1 else f"{seeds} (modelled)."
        )
    least = cells[0].part.experiment.preliminary_below if cells else 0
    if timed and min(timed) < least:
        words.append(f"Preliminary: fewer than {least} blocks.")
    return " ".join(words)


def _source(cells):
    """The commits that the trials ran; "" if none is recorded."""
    commits = {source for cell in cells for source in cell.sources}
    if len(commits) > 3:
        return f"Trials of {len(commits)} commits."
    return f"Trials of commit {', '.join(sorted(commits))}." if commits else ""


def caption(cells, *sentences):
    """The caption: mode, hardware and links, then the figure's own sentences, then n and the source."""
    said = (_modes(cells), _links(cells), *sentences, _sample(cells), _source(cells))
    return " ".join(filter(None, said))
