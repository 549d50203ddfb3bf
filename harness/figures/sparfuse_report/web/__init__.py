"""Makes the pages of `sparfuse site` from its data.json: an index, and a page a system, a method, a
workload, an experiment and a pair of systems.

Pages need no network, no server and no script: tables stand in a fixed order, and a script of their
own sorts and filters them. Numbers of unlike origin (measured, emulated, modelled, imported) never
stand in one table. Whatever comes from trials is escaped, and the pages' policy runs no other script.
"""

import base64
import functools
import hashlib

from sparfuse_report import page, wording
from sparfuse_report.web import index, pairs, subjects
from sparfuse_report.web.store import Store

HEADINGS = {
    "systems": "Systems",
    "methods": "Methods",
    "workloads": "Workloads",
    "experiments": "Experiments",
    "pairs": "Systems compared",
}
MEANS = {**wording.MODE_MEANS, "imported": "taken over from the output of another tool or paper"}


@functools.cache
def _script_digest():
    script = page.environment().get_template("tables.js").render()
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _page(template, store, shown, up="../"):
    written = store.data.get("written_utc")
    if written:
        shown["facts"].append(f"written {written[:16].replace('T', ' ')} UTC")
    return page.fill(
        f"site_{template}.html",
        store=store,
        up=up,
        headings=HEADINGS,
        mode_means={mode: MEANS.get(mode, "as its trials call it") for mode in store.modes},
        script_digest=_script_digest(),
        **shown,
    )


def pages(data):
    """Yields (path within the site, HTML)."""
    store = Store(data)
    yield "index.html", _page("index", store, index.shown(store), up="")
    for kind, template, names in (
        ("system", "system", store.systems),
        ("method", "part", store.methods),
        ("workload", "part", store.workloads),
        ("experiment", "experiment", store.experiments),
    ):
        shown = getattr(subjects, kind)
        for name in names:
            yield store.page(kind, name).path(), _page(template, store, shown(store, name))
    for pair in store.pairs:
        yield store.pair(pair).path(), _page("pair", store, pairs.shown(store, pair))
