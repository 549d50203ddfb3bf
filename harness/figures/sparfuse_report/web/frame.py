"""Writes what every page of a site has: its style and script, a policy under which nothing else runs
or loads, and the way back."""

import base64
import functools
import hashlib
from pathlib import Path

from sparfuse_report import page, wording
from sparfuse_report.page import escape

FOLDER = Path(__file__).resolve().parent
MEANS = {**wording.MODE_MEANS, "imported": "taken over from what another tool or paper printed"}


@functools.cache
def _own(name):
    return (FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def _head():
    digest = base64.b64encode(hashlib.sha256(_own("tables.js").encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='color-scheme' content='light dark'>"
        f"<style>{_own('site.css')}</style>"
    )


def site_page(store, title, facts, sections, up="../", within=None):
    """A page of the site; within: (anchor, heading) of the index's section that it belongs to."""
    way = [f"<a href='{up}index.html'>All results</a>"] if up else []
    if within:
        anchor, heading = within
        way.append(f"<a href='{up}index.html#{anchor}'>{escape(heading)}</a>")
    top = f"<p class='way'>{' › '.join(way)}</p>" if way else ""
    written = store.data.get("written_utc")
    if written:
        facts = [*facts, f"written {written[:16].replace('T', ' ')} UTC"]
    sections = [*sections, ("reading", "How to read this", [], _reading(store))]
    return page.html_page(
        title, facts, sections, head=_head(), top=top, end=f"<script>{_own('tables.js')}</script>"
    )


def look_of(mode):
    """The class of what is of a mode; one that nobody here knows looks like what is imported."""
    return mode if mode in MEANS else "imported"


def mode_badge(mode):
    return f"<span class='badge mode {look_of(mode)}'>{escape(mode)}</span>"


def _reading(store):
    entries = [(mode_badge(mode), escape(MEANS.get(mode, "as its trials call it"))) for mode in store.modes]
    within, least = f"{100 * store.within:g}", store.preliminary_below
    entries += [
        (
            f"vs {escape(store.reference)}",
            f"a method's value over {escape(store.reference)}'s in the same block, on the same system: geometric "
            "mean and 95 % t interval over blocks; of modelled ones what the ranges of the model's inputs leave. "
            "In drawings the line is 1; an arrow: the interval goes on.",
        ),
        (
            "n",
            "blocks that the number is of; it unfolds to the ids of their trials. "
            f"* fewer than {least}: preliminary.",
        ),
        (
            "absolute",
            "of one system alone: a faster machine is not a better method. Nothing is ranked by it.",
        ),
        (
            "systems",
            "are compared by their ratios, never by absolute values. They agree where the interval of "
            f"the quotient lies within {within} % of 1. Modelled numbers are in no verdict.",
        ),
        (
            "what counts",
            "of each block the newest trial that passed its checks, of the newest revisions that the "
            "system has; times of disturbed trials do not, unless the site was asked to keep them.",
        ),
    ]
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in entries) + "</dl>"


def facts_list(facts):
    """Pairs of a name and HTML; those without anything to say are left out."""
    said = "".join(f"<dt>{escape(name)}</dt><dd>{words}</dd>" for name, words in facts if words)
    return f"<dl>{said}</dl>"
