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
    return TOKEN.sub(_whole, environment().get_template(template).render(contents=[], **data))


# Elements whose text has lines of its own or is not shown in the page, tags, and names such as
# safusion-inter, or dates: browsers would break the line after their hyphens. They may break a name that
# would fill a line of a telephone.
TOKEN = re.compile(
    r"<(pre|title|style|script)>.*?</\1>|<[^>]*>|(?P<name>(?<![\w-])\w[\w.]*(?:-[\w.]+)+(?![\w-]))", re.DOTALL
)
LONGEST_WHOLE = 40


def _whole(match):
    """The token; a name with marks that keep browsers from breaking it."""
    name = match["name"]
    return f"<span class='whole'>{name}</span>" if name and len(name) <= LONGEST_WHOLE else match[0]
