"""What stands under every figure: how its numbers were obtained, on what, and what spreads mean."""

import json

import intervals
import wording


def modes(cells):
    """Mode and hardware of the trials behind `cells`."""
    machines = {}  # mode -> hardware
    for mode in ("measured", "emulated", "modelled"):
        names = {
            wording.hardware(trial.system)
            for cell in cells
            if cell.mode == mode
            for trial in cell.trials.values()
        }
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


def links(cells):
    """The shaped and the modelled links in full, which panels name by their speed alone."""
    sentences = []
    for word, modes_of in (("Shaped", ("measured", "emulated")), ("Modelled link", ("modelled",))):
        found = {
            (cell.config["link"].get("gbps", 0), wording.link_in_full(cell.config))
            for cell in cells
            if cell.config.get("link") and cell.mode in modes_of
        }
        if found:
            sentences.append(f"{word}: {'; '.join(words for _, words in sorted(found))}.")
    return " ".join(sentences)


def sample(cells):
    """n, and "preliminary" where timed cells have too few blocks for an interval to be trusted."""
    timed = [cell.n for cell in cells if cell.n and cell.mode != "modelled"]
    modelled = [cell.n for cell in cells if cell.n and cell.mode == "modelled"]
    words = []
    if timed:
        words.append(wording.blocks(timed) + ("." if not modelled else " (timed)."))
    if modelled:
        seeds = wording.blocks(modelled).replace("block", "seed")
        if any(cell.mean("step_uncertainty") is not None for cell in cells):
            how = "computed; intervals are what the profile's errors of measurement leave"
        else:
            how = "computed, so without an interval"
        words.append(
            f"{seeds} (modelled; {how})." if max(modelled) == 1 else f"{seeds} (modelled)."
        )
    if timed and min(timed) < intervals.PRELIMINARY_BELOW:
        words.append(f"Preliminary: fewer than {intervals.PRELIMINARY_BELOW} blocks.")
    return " ".join(words)


def _machine(trial):
    """What ran it. Modelled trials of one machine have a profile for each workload."""
    return json.dumps(
        {key: value for key, value in (trial.system or {}).items() if key != "profile_hash"},
        sort_keys=True,
    )


def systems(cells):
    """A warning where trials of several machines stand side by side; "" otherwise. Declared
    clusters are no machines of the trials but settings, which panels tell apart."""
    machines = {}
    for cell in cells:
        for trial in cell.trials.values():
            setting = (cell.mode, wording.declared_cluster(cell.config))
            machines.setdefault(setting, set()).add(_machine(trial))
    for (mode, _), found in machines.items():
        if len(found) > 1:
            return f"Attention: {mode} trials of {len(found)} different systems are mixed here."
    return ""


def source(cells):
    """The commits that the trials ran; "" where none is recorded."""
    commits = set()
    for cell in cells:
        for trial in cell.trials.values():
            if trial.source_commit:
                dirty = wording.find(trial.provenance, "dirty")
                commits.add(trial.source_commit[:10] + (" with changes" if dirty else ""))
    if len(commits) > 3:
        return f"Trials of {len(commits)} commits."
    return f"Trials of commit {', '.join(sorted(commits))}." if commits else ""


def caption(cells, *sentences):
    """Mode and hardware, then what is drawn, then n and the source."""
    return " ".join(
        text
        for text in (
            modes(cells),
            links(cells),
            *sentences,
            sample(cells),
            source(cells),
            systems(cells),
        )
        if text
    )
