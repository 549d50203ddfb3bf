"""Makes a page a method and a page a workload: what it is, and its results everywhere."""

from sparfuse_report import wording
from sparfuse_report.page import escape, plain_table
from sparfuse_report.web import frame, index, results


def pages_of(store):
    for name, fields in store.methods.items():
        yield store.method(name).path(), _method(store, name, fields)
    for name, fields in store.workloads.items():
        yield store.workload(name).path(), _workload(store, name, fields)


def _method(store, name, fields):
    cells = store.cells_of(method=name)
    what = [
        ("Summary", escape(fields.get("summary", ""))),
        ("Source", escape(fields.get("source", ""))),
        ("Made of", _composition(fields)),
        ("Deviations", escape(fields.get("deviations", ""))),
        ("Revision here", escape(fields.get("revision", ""))),
    ]
    options = [(key, value) for key, value in wording.flatten(fields.get("options")).items() if value != ""]
    sections = [
        ("what", "What it is", [], _what(what, "Its options, unless an experiment says otherwise", options)),
        ("results", "Results", [], results.tables(store, cells, "../", without=("method",))),
    ]
    return _page(store, name, fields.get("title", ""), cells, sections, "methods")


def _composition(fields):
    parts = ("strategy", "planner", "sparsifier", "feedback", "collective")
    return escape(", ".join(f"{part} {fields[part]}" for part in parts if fields.get(part)))


def _workload(store, name, fields):
    cells = store.cells_of(workload=name)
    what = [
        ("Summary", escape(fields.get("summary", ""))),
        ("Data", escape(_data(fields))),
        ("Parameters", _size(fields)),
        ("Batch", _batch(fields)),
        ("Metric", escape(fields.get("metric", ""))),
    ]
    recipe = [(each["name"], each["default"], each["meaning"]) for each in fields.get("recipe", [])]
    sections = [
        ("what", "What it is", [], _what(what, "Its recipe, unless an experiment says otherwise", recipe)),
        ("results", "Results", [], results.tables(store, cells, "../", without=("workload",))),
    ]
    return _page(store, name, fields.get("summary", ""), cells, sections, "workloads")


def _data(fields):
    if not fields:
        return ""
    kind = fields.get("kind_of_data", "")
    if not fields.get("synthetic"):
        return kind
    return f"{kind}, made up from the seed: nothing is learned, so that its throughput alone counts"


def _size(fields):
    if "parameters" not in fields:
        return ""
    return f"{wording.number(fields['parameters'])} in {fields['tensors']} tensors"


def _batch(fields):
    if "batch_per_worker" not in fields:
        return ""
    return escape(f"{fields['batch_per_worker']} a worker; throughput counts {fields['unit']}")


def _what(facts, heading, rows):
    if not any(words for _, words in facts):
        return (
            "<p>This program has nothing of that name: it is from a file of its own, or of another "
            "version.</p>"
        )
    out = frame.facts_list(facts)
    if rows:
        columns = [""] * len(rows[0])
        out += f"<details><summary>{escape(heading)}</summary>{plain_table(columns, rows)}</details>"
    return out


def _page(store, name, title, cells, sections, kind):
    failed = results.failures(store, cells, "../", without=(kind.removesuffix("s"),))
    if failed:
        sections.append(("failures", "Trials that do not count", [], failed))
    facts = [
        title,
        results.count(len({cell.system for cell in cells}), "system"),
        results.count(len(cells), "cell"),
    ]
    within = (kind, index.HEADINGS[kind])
    return frame.site_page(store, name, [fact for fact in facts if fact], sections, within=within)
