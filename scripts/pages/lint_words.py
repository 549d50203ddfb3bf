#!/usr/bin/env python3
"""Measures the sentences, tables and lengths of pages, and checks where their links lead.

    scripts/pages/lint_words.py [--table] [PAGE ...]

Without PAGE, looks at every Markdown page that git knows or would add. A page has at most 18 words
a sentence on average, 30 in any sentence, 120 characters in a cell of a table, and 200 lines. Links
lead to files and to headings that exist, docs/README.md links every page of docs, and sources name
pages that exist. scripts/pages/not_yet.txt lists the pages that still break a rule, and may only
shrink. --table prints the measures of each page instead. Exit status: 0 clean, 1 something is wrong, 2 usage.
"""

import argparse
import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import tree_size  # noqa: E402

NOT_YET = "scripts/pages/not_yet.txt"
INDEX = "docs/README.md"
MEAN_WORDS = 18
MAX_WORDS = 30
MAX_CELL = 120
MAX_LINES = 200
RULES = ("mean", "sentence", "cell", "lines")

FENCE = re.compile(r"\s*(```|~~~)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
TARGET = re.compile(r"\]\(([^)\s]*)\)")
CODE = re.compile(r"`+[^`]+`+")
ITEM = re.compile(r"(?:[*+-]|\d+\.)\s+")
HEADING = re.compile(r"(#+)\s+(.*?)\s*#*$")
# Abbreviations whose full stop does not end a sentence.
ABBREVIATION = re.compile(r"\b(Fig|Figs|al|vs|e\.g|i\.e|No|Eq|Sec|Tab|cf|St|Dr)\.$")
END = re.compile(r"[.!?][\"')\]*_]*\s+(?=[\"'(\[*_]*[A-Z0-9])")
WORD = re.compile(r"[^\W_]")
# A page's name in a comment or a message.
MENTION = re.compile(r"(?<![\w/])docs/[\w/.-]+\.md\b")
SOURCE = re.compile(r"\.(hpp|cpp|cu|cuh|inc|py|sh|toml|cmake|txt|html|ya?ml)$|^scripts/[^.]+$")
OWN_TEST = "tests/scripts/lint_words_test.py"


def blanked(match):
    """The match's line ends alone, which keep line numbers."""
    return "\n" * match.group(0).count("\n")


def lines_of_text(text):
    """(number, line) of each line outside of code blocks and comments."""
    fence = None
    for number, line in enumerate(COMMENT.sub(blanked, text).splitlines(), 1):
        if mark := FENCE.match(line):
            if fence is None:
                fence = mark[1]
            elif mark[1] == fence:
                fence = None
        elif fence is None:
            yield number, line


def plain(text):
    """The text as readers count it: a link is its words, a piece of code is one word."""
    text = IMAGE.sub("", text)
    text = CODE.sub("Code", text)
    return LINK.sub(r"\1", text)


def blocks(text):
    """[(number, line), ...] of each paragraph and each item of a list."""
    block = []
    for number, line in lines_of_text(text):
        stripped = line.strip().removeprefix("> ")
        ends = not stripped or stripped.startswith("|") or HEADING.match(stripped)
        item = ITEM.match(stripped)
        if (ends or item) and block:
            yield block
            block = []
        if not ends:
            block.append((number, stripped[item.end():] if item else stripped))
    if block:
        yield block


def sentences(text):
    """(line, words) of each sentence."""
    for block in blocks(text):
        # Code that continues on the next line is one word, too.
        joined = CODE.sub(lambda code: "Code" + "\n" * code.group(0).count("\n"),
                          "\n".join(line for _, line in block))
        joined = plain(joined)
        begin, first = 0, 0
        ends = [match.end() for match in END.finditer(joined)
                if not ABBREVIATION.search(joined[:match.start() + 1])]
        for end in [*ends, len(joined)]:
            words = sum(1 for word in joined[begin:end].split() if WORD.search(word))
            if words:
                yield block[min(first, len(block) - 1)][0], words
            first += joined[begin:end].count("\n")
            begin = end


def cells(text):
    """(line, characters) of each cell of a table, without the targets of links."""
    for number, line in lines_of_text(text):
        row = line.strip()
        if not row.startswith("|"):
            continue
        row = re.sub(r"\\\||`[^`]*`", lambda part: part.group(0).replace("|", "/"), row)
        for cell in row.strip("|").split("|"):
            yield number, len(LINK.sub(r"\1", cell).strip())


def measures(text):
    """(average words in a sentence, words of the longest one, characters of the widest cell, lines)."""
    words = [count for _, count in sentences(text)]
    return (sum(words) / len(words) if words else 0.0, max(words, default=0),
            max((width for _, width in cells(text)), default=0), len(text.splitlines()))


def broken_rules(page, text):
    """(rule, complaint) for each place where a page's words break a rule."""
    mean, _, _, lines = measures(text)
    if round(mean, 1) > MEAN_WORDS:
        yield "mean", f"{page}:1: {mean:.1f} words a sentence: expected {MEAN_WORDS} at most"
    for line, words in sentences(text):
        if words > MAX_WORDS:
            yield "sentence", f"{page}:{line}: a sentence of {words} words: expected {MAX_WORDS} at most"
    for line, width in cells(text):
        if width > MAX_CELL:
            yield "cell", f"{page}:{line}: a cell of {width} characters: expected {MAX_CELL} at most"
    if lines > MAX_LINES:
        yield "lines", f"{page}:{MAX_LINES + 1}: {lines} lines: expected {MAX_LINES} at most"


def anchors(text):
    """The anchors of a page's headings, as forges make them."""
    seen = {}
    found = set()
    for _, line in lines_of_text(text):
        if heading := HEADING.match(line):
            words = LINK.sub(r"\1", heading[2]).replace("`", "").lower()
            anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            again = seen.get(anchor, 0)
            seen[anchor] = again + 1
            found.add(f"{anchor}-{again}" if again else anchor)
    return found


def broken_links(root, page, text):
    for number, line in lines_of_text(text):
        for target in TARGET.findall(CODE.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (root / page).parent / path if path else root / page
            if not file.exists():
                yield f"{page}:{number}: {target}: there is no such file"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
                yield f"{page}:{number}: {target}: {path or page} has no such heading"


def pages_without_a_link(index, pages):
    """Complaints about pages of the index's folder to which the index has no link."""
    folder = pathlib.PurePosixPath(INDEX).parent
    linked = {posixpath.normpath(f"{folder}/{target.partition('#')[0]}") for target in TARGET.findall(index)}
    for page in pages:
        if page.startswith(f"{folder}/") and page != INDEX and page not in linked:
            yield f"{INDEX}: no link to {page}"


def read_not_yet(text):
    """{page: rules that it may break}."""
    pages = {}
    for number, line in enumerate(text.splitlines(), 1):
        page, *rules = line.split("#")[0].split() or [""]
        if not page:
            continue
        unknown = [rule for rule in rules if rule not in RULES]
        if not rules or unknown:
            raise ValueError(f"{NOT_YET}:{number}: {' '.join(unknown) or 'no rule'}: expected a page "
                             f"and some of {', '.join(RULES)}")
        pages[page] = set(rules)
    return pages


def complaints(root, pages, not_yet):
    """All complaints about pages. not_yet: {page: rules that it may break}."""
    for page in pages:
        text = (root / page).read_text()
        allowed = not_yet.get(page, set())
        broken = set()
        for rule, complaint in broken_rules(page, text):
            broken.add(rule)
            if rule not in allowed:
                yield complaint
        for rule in sorted(allowed - broken):
            yield f"{NOT_YET}: {page} keeps the rule '{rule}' now: take it off the list"
        yield from broken_links(root, page, text)


def broken_mentions(root, sources):
    """Complaints about sources that name pages that do not exist."""
    for source in sources:
        for number, line in enumerate((root / source).read_text(errors="replace").splitlines(), 1):
            for page in MENTION.findall(line):
                if not (root / page).is_file():
                    yield f"{source}:{number}: {page}: there is no such page"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--table", action="store_true", help="print the measures of each page")
    parser.add_argument("pages", metavar="PAGE", nargs="*", help="relative to the tree's root (default: all)")
    options = parser.parse_args()
    files = tree_size.files_of_the_tree(ROOT)
    known = [name for name in files if name.endswith(".md")]
    for page in options.pages:
        if page not in known:
            parser.error(f"{page}: expected a page of the tree")
    if options.table:
        print(f"{'words a sentence':>16} {'longest':>7} {'widest cell':>11} {'lines':>5}  page")
        for page in options.pages or known:
            mean, longest, widest, lines = measures((ROOT / page).read_text())
            print(f"{mean:16.1f} {longest:7} {widest:11} {lines:5}  {page}")
        return 0
    try:
        not_yet = read_not_yet((ROOT / NOT_YET).read_text())
    except ValueError as error:
        print(error)
        return 1
    found = list(complaints(ROOT, options.pages or known, not_yet))
    found += broken_mentions(ROOT, [name for name in files if SOURCE.search(name) and name != OWN_TEST])
    found += pages_without_a_link((ROOT / INDEX).read_text(), known)
    found += [f"{NOT_YET}: {page}: there is no such page" for page in sorted(set(not_yet) - set(known))]
    if found:
        print("words and links of pages (CONTRIBUTING.md, \"How pages read\"):",
              *(f"    {line}" for line in found), sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
