"""Says what the pages of systems, methods, workloads and experiments show: what each is, and its results
everywhere."""

from sparfuse_report import compare, report, wording
from sparfuse_report.web import table

MOST_SETTINGS = 12  # settings of a figure, which has a panel for each


def _subject(store, cells, kind, anchored=False):
    """The content that all pages of subjects share."""
    return {
        "first_section": ("what", "Description"),
        "kind": f"{kind}s",
        "results": table.groups(store, cells, (kind,), anchored),
        "failures": table.failures(store, cells, (kind,)),
    }


def system(store, key):
    said, cells, runs = store.systems[key], store.cells_of(system=key), store.runs_of(system=key)
    modelled = said["declared"] and not said["hardware"].startswith("imported: ")
    what = "a declared cluster: everything here is modelled" if modelled else said["hardware"]
    about = [
        ("Hardware", said["hardware"]),
        ("Known as", key),
        ("Hosts", _hosts(key, said)),
        ("Network", "; ".join(filter(None, map(_network, said["described"])))),
        ("Changed during a run", "; ".join(said["changed"])),
        ("Trials that count", f"{said['provenance']['trials']} of {said['trials']}"),
        ("Sources", "; ".join(each["source"] or "unknown" for each in said["provenance"]["sources"])),
    ]
    return {
        **_subject(store, cells, "system"),
        "title": said["name"],
        "facts": [what, wording.count(said["trials"], "trial"), table.dates(runs)],
        "about": _known(about),
        "system": said,
        "fingerprint": [(each["what"], each["value"]) for each in said["fingerprint"]],
        "ran": table.ran(store, runs, "experiment", "trials", "dates"),
        "pairs": [pair for pair in store.pairs if key in pair["systems"]],
        "software": [(name, "; ".join(values)) for name, values in said["provenance"]["facts"].items()],
    }


def _known(about):
    return [(name, words) for name, words in about if words]


def _hosts(key, system):
    if system["hosts"] < 2:
        return ""
    said = f"up to {system['hosts']} in one trial"
    return f"{said}; hosts of one results folder" if "@" in key else said


def _network(described):
    """The network as somebody described it; "" if there is none between nodes."""
    network = described["content"].get("network", {})
    if network.get("kind") in (None, "none"):
        return ""
    gbps = network.get("gbps")
    speed = f"{gbps:g} Gbit/s" if isinstance(gbps, (int, float)) else gbps
    return ", ".join(str(word) for word in (network["kind"], speed, network.get("topology")) if word)


def _part(store, kind, name, title, about, options, heading):
    cells = store.cells_of(**{kind: name})
    facts = [title, wording.count(len({cell.system for cell in cells}), "system")]
    return {
        **_subject(store, cells, kind),
        "title": name,
        "facts": [*filter(None, facts), wording.count(len(cells), "cell")],
        "about": _known(about),
        "options": options,
        "options_heading": f"{heading}, unless an experiment says otherwise",
    }


def method(store, name):
    fields = store.methods[name]
    parts = ("strategy", "planner", "sparsifier", "feedback", "collective")
    about = [
        ("Summary", fields.get("summary")),
        ("Source", fields.get("source")),
        ("Made of", ", ".join(f"{part} {fields[part]}" for part in parts if fields.get(part))),
        ("Deviations", fields.get("deviations")),
        ("Revision here", str(fields.get("revision", ""))),
    ]
    options = [(key, value) for key, value in wording.flatten(fields.get("options")).items() if value != ""]
    return _part(store, "method", name, fields.get("title"), about, options, "Its options")


def workload(store, name):
    fields = store.workloads[name]
    data = fields.get("kind_of_data", "")
    if fields.get("synthetic"):
        data += ", synthetic from the seed: nothing is learned, so only its throughput counts"
    size = batch = ""
    if "parameters" in fields:
        size = f"{wording.number(fields['parameters'])} in {fields['tensors']} tensors"
    if "batch_per_worker" in fields:
        batch = f"{fields['batch_per_worker']} a worker; throughput counts {fields['unit']}"
    about = [
        ("Summary", fields.get("summary")),
        ("Data", data),
        ("Parameters", size),
        ("Batch", batch),
        ("Metric", fields.get("metric")),
    ]
    recipe = [(each["name"], each["default"], each["meaning"]) for each in fields.get("recipe", [])]
    return _part(store, "workload", name, fields.get("summary"), about, recipe, "Its recipe")


def experiment(store, name):
    cells, runs = store.cells_of(experiment=name), store.runs_of(experiment=name)
    return {
        **_subject(store, cells, "experiment", anchored=True),
        "first_section": ("runs", "Where it ran"),
        "title": name,
        "facts": [
            wording.count(len(runs), "system"),
            wording.count(sum(run["trials"] for run in runs), "trial"),
            table.dates(runs),
        ],
        "ran": table.ran(store, runs, "system", "hardware", "trials", "dates"),
        "several": _several(store, name),
        "pairs": [
            pair for pair in store.pairs if any(cell["experiment"] == name for cell in pair["cells"])
        ],
    }


def _several(store, name):
    """A slope graph for each part that three or more systems ran."""
    found = [each for each in store.several if each["cells"][0]["experiment"] == name]
    shown = []
    for experiment, part, cells in compare.parts_of(found[0]) if found else ():
        settings = {cell["setting"] for cell in cells}
        if len(settings) > MOST_SETTINGS:
            why = f"not drawn, for it has {len(settings)} settings; the table above has all of them."
            shown.append(report.Shown(f"{part}: {why}"))
            continue
        drawn = compare.draw(found[0], experiment, part, cells)
        drawn.tables = []
        shown.append(report.embedded(drawn, compare.file_name(experiment, part)))
    return shown
