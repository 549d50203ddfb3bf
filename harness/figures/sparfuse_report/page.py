"""Writes the HTML that all pages are made of: style, tables, sections."""

import html
import re

from sparfuse_report import tables, wording

CSS = """
:root { --ink: #1f2328; --quiet: #57606a; --line: #d8dee4; --wash: #f6f8fa; --alarm: #9b1c1c;
  --good: #1a6b3c; --part: #8a5a00; --link: #1f4fa3; --paper: #fff; --imported: #a800a8; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  color: var(--ink); overflow-wrap: break-word;
  margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 76rem; background: var(--paper); }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .6rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.8rem 0 .5rem; }
p { margin: .5rem 0; max-width: 60rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.quiet, figcaption, .notes { color: var(--quiet); font-size: .86rem; }
.alarm { color: var(--alarm); } .good { color: var(--good); } .part { color: var(--part); }
.imported { color: var(--imported); }
nav { background: var(--wash); border: 1px solid var(--line); border-radius: 6px;
  padding: .8rem 1.2rem;
  margin: 1.5rem 0; }
nav ol { margin: .2rem 0; padding-left: 1.4rem; columns: 2; }
.badge { display: inline-block; border: 1px solid var(--line); border-radius: 999px;
  padding: 0 .6em;
  font-size: .8rem; color: var(--quiet); margin-right: .3em; font-weight: normal;
  vertical-align: middle; }
.wide { overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums;
  margin: .6rem 0; }
th, td { padding: .28rem .75rem; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: .2rem; white-space: normal;
  min-width: 8em; }
thead th { border-bottom: 1.5px solid var(--ink); font-weight: 600; vertical-align: bottom; }
tbody td { border-bottom: 1px solid var(--line); }
tr.group td { background: var(--wash); font-weight: 600; text-align: left; padding-left: .2rem; }
tr.group span.heading { position: sticky; left: .2rem; display: inline-block; max-width: 90vw; }
tr.failed td { color: var(--alarm); } tr.absent td { color: var(--quiet); }
table.text td, table.text th { text-align: left; white-space: normal; min-width: 7em; }
table.verdicts { width: 100%; }
table.verdicts td, table.verdicts th { text-align: left; white-space: normal; }
table.verdicts .mark { min-width: 0; width: 1.6rem; font-weight: 700; text-align: center; padding: .28rem 0; }
table.verdicts td.claim { width: 42%; } table.verdicts p { margin: 0; font-size: .82rem; }
ul.settings { list-style: none; margin: 0 0 .3rem; padding: 0; display: flex; flex-wrap: wrap;
  gap: .25rem; }
ul.settings li { border: 1px solid currentColor; border-radius: 4px; padding: 0 .45em; }
/* Drawn letters stay legible: a figure shrinks to two thirds, and scrolls in its box below that. */
figure { margin: 1.4rem 0 2rem; } figure img { height: auto; display: block; max-width: none;
  width: clamp(.66 * var(--width), 100%, var(--width)); }
figcaption { max-width: 60rem; margin-top: .4rem; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem .8rem;
  font-size: .78rem; overflow-x: auto; white-space: pre-wrap; }
.whole { white-space: nowrap; }
details { margin: .4rem 0; } summary { cursor: pointer; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; font-size: .9rem; }
dt { color: var(--quiet); } dd { margin: 0; min-width: 0; }
ul.found { padding-left: 1.2rem; max-width: 60rem; } ul.found li { margin: .45rem 0; }
@media (max-width: 40rem) {
  .wide th:first-child, .wide td:first-child { position: sticky; left: 0; background: var(--paper); }
  .wide table:not(.text) th:first-child, .wide table:not(.text) td:first-child { max-width: 10rem; }
  .wide table:not(.text) tr.group td:first-child { max-width: none; background: var(--wash); }
  body { padding: 1.2rem .8rem 3rem; } nav ol { columns: 1; } dl { display: block; }
  h1 { font-size: 1.35rem; } dd { margin: 0 0 .5rem; }
  table.verdicts, table.verdicts tbody, table.verdicts td { display: block; }
  table.verdicts thead { display: none; } table.verdicts td.claim { width: auto; }
  table.verdicts tr { display: grid; grid-template-columns: 1.6rem minmax(0, 1fr);
    border-bottom: 1px solid var(--line); }
  table.verdicts td { border: 0; grid-column: 2; }
  table.verdicts td.mark { grid-column: 1; width: auto; }
  table.verdicts tr.group td { grid-column: 1 / 3; }
}
@media print {
  body { font-size: 9.5pt; padding: 0; max-width: none; }
  table { font-size: 7pt; } th, td { padding: .15rem .35rem; } .wide { overflow: visible; }
  figure, tr, pre { break-inside: avoid; } h2, h3 { break-after: avoid; } a { color: inherit; }
}
"""


def escape(value):
    return html.escape(str(value))


def anchor_of(*words):
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


def table_html(table):
    out = ["<div class='wide'><table><thead><tr>"]
    out += [f"<th scope='col'>{escape(column)}</th>" for column in table.columns]
    out.append("</tr></thead><tbody>")
    width = len(table.columns)
    for heading, rows in table.groups:
        out.append(
            f"<tr class='group'><td colspan='{width}'><span class='heading'>{escape(heading)}</span>"
            "</td></tr>"
        )
        for row in rows:
            if isinstance(row, tables.Failed):
                quiet = row.why == "not run" or row.why.startswith(wording.NONE)
                out.append(
                    f"<tr class='{'absent' if quiet else 'failed'}'><td>{escape(row.method)}</td>"
                    f"<td colspan='{width - 1}' style='text-align:left'>{escape(row.why)}</td></tr>"
                )
            else:
                out.append("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>")
    out.append("</tbody></table></div>")
    if table.notes:
        out.append("<p class='notes'>" + "<br>".join(escape(note) for note in table.notes) + "</p>")
    return "".join(out)


def plain_table(columns, rows):
    out = ["<div class='wide'><table class='text'><thead><tr>"]
    out += [f"<th scope='col'>{escape(column)}</th>" for column in columns]
    out.append("</tr></thead><tbody>")
    out += ["<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows]
    out.append("</tbody></table></div>")
    return "".join(out)


def folded(table):
    """A table behind its number of rows."""
    rows = sum(len(rows) for _, rows in table.groups)
    return (
        f"<details><summary class='quiet'>The numbers ({rows} rows)</summary>{table_html(table)}"
        "</details>"
    )


# A name like safusion-inter, or a date: browsers would break the line behind its hyphens. What would
# fill a line of a telephone they may break.
HYPHENATED = re.compile(r"(?<![\w-])\w[\w.]*(?:-[\w.]+)+(?![\w-])")
LONGEST_WHOLE = 40


def _whole(match):
    word = match.group()
    return f"<span class='whole'>{word}</span>" if len(word) <= LONGEST_WHOLE else word


def _with_whole_names(body):
    """HTML in whose text no hyphenated name is broken; what is preformatted stays as it is."""
    out = []
    for piece in re.split(r"(<pre>.*?</pre>|<[^>]*>)", body, flags=re.DOTALL):
        out.append(piece if piece.startswith("<") else HYPHENATED.sub(_whole, piece))
    return "".join(out)


def html_page(title, facts, sections, warnings=(), head="", top="", end=""):
    """A whole page of sections, each (anchor, heading, badges, body); warnings stand at its head.
    head, top and end: HTML that a page has besides, within its head, over its title, and last."""
    out = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(title)}</title><style>{CSS}</style>{head}</head><body>{top}",
        _with_whole_names(f"<h1>{escape(title)}</h1>"),
        _with_whole_names(f"<p class='quiet'>{escape(' · '.join(facts))}</p>"),
    ]
    out += [f"<p class='alarm'><b>Warning:</b> {escape(words)}.</p>" for words in warnings if words]
    first, *rest = sections
    out += _section(*first)
    out.append("<nav><b>Contents</b><ol>")
    out += [f"<li><a href='#{anchor}'>{escape(head)}</a></li>" for anchor, head, _, _ in sections]
    out.append("</ol></nav>")
    for section in rest:
        out += _section(*section)
    out.append(f"{end}</body></html>\n")
    return "".join(out)


def _section(anchor, heading, badges, body):
    marks = "".join(f" <span class='badge'>{escape(badge)}</span>" for badge in badges)
    heading = f"<h2>{escape(heading)}{marks}</h2>"
    return [f"<section id='{anchor}'>", _with_whole_names(heading + body), "</section>"]
