"""Fills the templates of pages with data, which they escape."""

import functools
import re
from pathlib import Path

import jinja2

from sparfuse_report import wording


def anchor_of(*words):
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


@functools.cache
def environment():
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
    )
    made.globals.update(anchor_of=anchor_of, wording=wording)
    return made


def fill(template, **data):
    """The text of a page; its macro `section` fills `contents`, the table of contents."""
    return _with_whole_names(environment().get_template(template).render(contents=[], **data))


# A name such as safusion-inter, or a date: browsers would break the line after its hyphens. They may
# break a name that would fill a line of a telephone.
HYPHENATED = re.compile(r"(?<![\w-])\w[\w.]*(?:-[\w.]+)+(?![\w-])")
LONGEST_WHOLE = 40
# Tags, and elements whose text has lines of its own or is not shown in the page.
KEPT = re.compile(r"(<(pre|title|style|script)>.*?</\2>|<[^>]*>)", flags=re.DOTALL)


def _whole(match):
    word = match.group()
    return f"<span class='whole'>{word}</span>" if len(word) <= LONGEST_WHOLE else word


def _with_whole_names(text):
    """The HTML with marks that keep browsers from breaking hyphenated names."""
    out, end = [], 0
    for kept in KEPT.finditer(text):
        out += [HYPHENATED.sub(_whole, text[end : kept.start()]), kept.group()]
        end = kept.end()
    return "".join([*out, HYPHENATED.sub(_whole, text[end:])])
