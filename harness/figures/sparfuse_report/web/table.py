"""Writes tables that can be sorted: every value of a column of numbers stands beside its text in base
units, so that 9 comes before 10 and 2 ms before 1 s."""

from dataclasses import dataclass
from typing import Callable

from sparfuse_report.page import anchor_of, escape
from sparfuse_report.wording import NONE


@dataclass
class Column:
    title: str
    html: Callable  # of a row
    value: Callable | None = None  # of a row: its number, or None; without it, text sorts
    head: str = ""  # HTML under the title
    kind: str = ""  # class of its cells

    @property
    def key(self):
        return anchor_of(self.title)


def table(name, columns, rows, anchor=None, kind=None):
    """name: the table's anchor on its page; anchor, kind: of a row, or None."""
    out = [f"<div class='wide'><table class='sortable' id='{name}'><thead><tr>"]
    for column in columns:
        sort = "number" if column.value else "text"
        look = f" class='{column.kind}'" if column.kind else ""
        out.append(
            f"<th scope='col'{look} data-key='{column.key}' data-sort='{sort}'><span class='title'>"
            f"{escape(column.title)}</span>{column.head}</th>"
        )
    out.append("</tr></thead><tbody>")
    for row in rows:
        mark = f" id='{anchor(row)}'" if anchor else ""
        look = f" class='{kind(row)}'" if kind and kind(row) else ""
        out.append(f"<tr{mark}{look}>")
        for column in columns:
            value = column.value(row) if column.value else None
            number = f" data-value='{value!r}'" if value is not None else ""
            looks = " ".join(filter(None, ("text" if not column.value else "", column.kind)))
            look = f" class='{looks}'" if looks else ""
            label = f" data-label='{escape(column.title)}'"
            out.append(f"<td{label}{number}{look}>{column.html(row) or NONE}</td>")
        out.append("</tr>")
    out.append("</tbody></table></div>")
    return "".join(out)
