"""Makes the pages of `sparfuse site` from its data.json: an index, and a page a system, a method, a
workload, an experiment and a pair of systems.

Pages need no network, no server and no script: tables stand in a fixed order, and a script of their
own sorts and filters them. Numbers of unlike origin (measured, emulated, modelled, imported) never
stand in one table. Whatever comes from trials is escaped, and the pages' policy runs no other script.
"""

from sparfuse_report.web import index, pages_of_experiments, pages_of_pairs, pages_of_parts, pages_of_systems
from sparfuse_report.web.store import Store


def pages(data):
    """Yields (path within the site, HTML)."""
    store = Store(data)
    yield "index.html", index.page_of(store)
    for module in (pages_of_systems, pages_of_parts, pages_of_experiments, pages_of_pairs):
        yield from module.pages_of(store)
