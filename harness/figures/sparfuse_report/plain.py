"""Keeps characters that reverse a line or command a terminal out of pages."""

import re

# The characters of harness/files/plain_text.hpp: controls but tab and end of line, marks of direction,
# separators of lines and paragraphs, the mark of byte order.
_NOT_PLAIN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)


def visible(value):
    r"""A value of JSON, or a text, with each such character written out: "\u202e"."""
    if isinstance(value, str):
        return _NOT_PLAIN.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
    if isinstance(value, list):
        return [visible(each) for each in value]
    if isinstance(value, dict):
        return {visible(key): visible(each) for key, each in value.items()}
    return value
