"""Makes a page a system: what it is, what ran there, what came out."""

from sparfuse_report.page import escape, plain_table
from sparfuse_report.web import frame, index, results
from sparfuse_report.web.table import Column, table
from sparfuse_report.wording import flatten


def pages_of(store):
    for key, system in store.systems.items():
        yield store.system(key).path(), _page(store, key, system)


def _page(store, key, system):
    cells, runs = store.cells_of(system=key), store.runs_of(system=key)
    sections = [
        ("what", "What it is", [], _what(key, system)),
        ("results", "Results", [], results.tables(store, cells, "../", without=("system",))),
        ("experiments", "What ran here", [], _experiments(store, runs)),
    ]
    pairs = [pair for pair in store.pairs if key in pair["systems"]]
    if pairs:
        sections.append(("pairs", "Compared with others", [], _pairs(store, pairs)))
    failed = results.failures(store, cells, "../", without=("system",))
    if failed:
        sections.append(("failures", "Trials that do not count", [], failed))
    software = system["provenance"]["facts"]
    if software:
        rows = [(name, "; ".join(values)) for name, values in software.items()]
        sections.append(("software", "Software and environment", [], plain_table(["", ""], rows)))
    facts = [
        _what_it_is(system),
        results.count(system["trials"], "trial"),
        results.dates(runs),
    ]
    return frame.site_page(
        store, system["name"], facts, sections, within=("systems", index.HEADINGS["systems"])
    )


def _what_it_is(system):
    modelled = system["declared"] and not system["hardware"].startswith("imported: ")
    return "a declared cluster: everything here is modelled" if modelled else system["hardware"]


def _what(key, system):
    said = system["provenance"]
    facts = [
        ("Hardware", escape(system["hardware"])),
        ("Known as", escape(key)),
        ("Hosts", _hosts(key, system)),
        ("Network", escape("; ".join(filter(None, map(_network, system["described"]))))),
        ("Changed during a run", escape("; ".join(system["changed"]))),
        ("Trials that count", f"{said['trials']} of {system['trials']}"),
        ("Sources", escape("; ".join(each["source"] or "unknown" for each in said["sources"]))),
    ]
    out = [frame.facts_list(facts)]
    if system["fingerprint"]:
        rows = [(each["what"], each["value"]) for each in system["fingerprint"]]
        out.append(
            "<details><summary>Its fingerprint: what was measured of the system itself</summary>"
            f"{plain_table(['', ''], rows)}</details>"
        )
    for each in system["described"]:
        said_by = escape(f"results/systems/{each['name']}.toml")
        title = escape(each["content"].get("title", ""))
        table_of = plain_table(["", ""], flatten(each["content"]).items())
        out.append(f"<details><summary>As {said_by} describes it: {title}</summary>{table_of}</details>")
    for each in said["systems"]:
        out.append(
            f"<details><summary>As {results.count(each['trials'], 'trial')} recorded it: "
            f"{escape(each['hardware'] or 'nothing')}</summary>"
            f"{plain_table(['', ''], each['facts'].items())}</details>"
        )
    return "".join(out)


def _hosts(key, system):
    if system["hosts"] < 2:
        return ""
    said = f"up to {system['hosts']} of a trial"
    return f"{said}; those of one results folder" if "@" in key else said


def _network(described):
    """As somebody described it; "" where there is none between nodes."""
    network = described["content"].get("network", {})
    if network.get("kind") in (None, "none"):
        return ""
    gbps = network.get("gbps")
    speed = f"{gbps:g} Gbit/s" if isinstance(gbps, (int, float)) else gbps
    return ", ".join(str(word) for word in (network["kind"], speed, network.get("topology")) if word)


def _experiments(store, runs):
    columns = [
        Column("experiment", lambda run: store.experiment(run["experiment"]).html("../")),
        Column("trials", lambda run: str(run["trials"]), lambda run: run["trials"]),
        Column("dates", lambda run: results.dates([run])),
    ]
    return table("ran", columns, runs)


def _pairs(store, pairs):
    return "".join(
        f"<p>{store.pair(pair).html('../')}: {escape('; '.join(pair['summary']))}.</p>" for pair in pairs
    )
