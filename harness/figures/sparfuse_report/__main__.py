"""Draws the figures and the report of one experiment, or of all of a paper's, from spec.json and
the series that it names; nothing else of the store is read.

  PYTHONPATH=harness/figures python -m sparfuse_report VERB ...

  sparfuse_report figure --results DIR --experiment ID --spec spec.json --out DIR
                         [--part P] [--figure NAME]      NAME is a figure's name or kind
                         [--data FILE.json]              gets the numbers that every figure drew
      PNG (150 dpi), PDF and SVG for each figure, and CSV for the numbers of one that shows a
      paper's beside ours; of all figures numbers.csv, too: every number as `sparfuse table --format
      csv` has it. Prints the files written.
  sparfuse_report report --results DIR --experiment ID --spec spec.json --out FILE.html
      one self-contained HTML file.
  sparfuse_report paper  --results DIR --index index.json --out FILE.html
      that file for each experiment of the index, and a page over them.
  sparfuse_report explain --results DIR --experiment ID --spec spec.json --out DIR
                          --of HASH --over HASH --found FILE.json [--json]
      why the steps of two cells, given by their config_hash, take unequal time: two timelines in
      the formats of figures, and the text or the JSON of FILE.json, which the harness made of what
      the verb `parts` (the same options, --out FILE.json) found in their steps.
  sparfuse_report rates   --data FILE.json --out DIR [--quiet]
      the rates that utilisations need, as `sparfuse advise --utilisation` found; prints
      likewise
  sparfuse_report phase   --data FILE.json --out DIR [--quiet]
      which method is fastest over bandwidth and workers, as `sparfuse advise --phase` found; prints
      the files written unless quiet.
  sparfuse_report compare --data FILE.json --out DIR [--quiet]
      a figure a part of what `sparfuse compare` found; likewise.
  sparfuse_report site    --data FILE.json --out DIR
      the pages of `sparfuse site`: FILE.json as docs/reference/site-data.md has it.

Needs Python 3.11 and what scripts/requirements.txt has. Exit codes: 0 done, 1 nothing of what
--part or --figure asked for could be drawn, 2 usage or input.
"""

import argparse
import functools
import json
import os
import sys
from pathlib import Path

from sparfuse_report import (
    cells,
    compare,
    explain,
    explain_picture,
    kinds,
    paper,
    phase,
    plain,
    rates,
    report,
    series,
    style,
    tables,
    web,
)
from sparfuse_report.drawn import numbers


def read_json(path):
    path = Path(path)
    try:
        return plain.visible(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise cells.SpecError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise cells.SpecError(f"{path}: not JSON: {error}") from error


def load_spec(path, name, results):
    spec = read_json(path)
    if spec.get("id") != name:
        raise cells.SpecError(f"{path}: describes '{spec.get('id')}'; expected '{name}'")
    experiment = cells.Experiment(spec, results)
    return experiment, style.Styles(experiment.methods)


def load(arguments):
    return load_spec(arguments.spec, arguments.experiment, arguments.results)


def name_figures(experiment):
    """[(part, entry, name)]; a name is the entry's own, or part and kind, made unique."""
    named, used = [], {}
    for part in experiment.parts:
        for entry in part.figures:
            name = entry.get("name") or f"{part.id}-{entry.get('kind')}"
            name = name.replace("/", "-").replace(" ", "-")
            used[name] = used.get(name, 0) + 1
            named.append((part, entry, name if used[name] == 1 else f"{name}-{used[name]}"))
    return named


def draw_figures(arguments):
    experiment, styles = load(arguments)
    if arguments.part:
        experiment.part(arguments.part)  # its error names the known parts
    named = name_figures(experiment)
    figures = [
        (part, entry, name)
        for part, entry, name in named
        if arguments.part in (None, part.id) and arguments.figure in (None, name, entry.get("kind"))
    ]
    asked = arguments.part or arguments.figure
    if not figures and asked:
        known = ", ".join(name for *_, name in named) or "none"
        raise cells.SpecError(f"experiment '{experiment.id}' has no such figure; it has {known}")
    written, data = 0, {}
    for part, entry, name in figures:
        if entry.get("kind") not in kinds.KINDS:
            known = ", ".join(kinds.KINDS)
            raise cells.SpecError(f"figure '{name}': unknown kind '{entry.get('kind')}'; known: {known}")
        try:
            drawn = kinds.KINDS[entry["kind"]](experiment, part, entry, styles)
        except cells.NoData as reason:
            print(f"{name}: not drawn: {reason}", file=sys.stderr)
            continue
        data[name] = numbers(drawn)
        paths = write_figure(drawn, arguments.out, name)
        print(*paths, *tables.write_csv(tables.of(entry), arguments.out, name), sep="\n")
        written += 1
    if written and not asked:
        write_page(Path(arguments.out) / "numbers.csv", experiment.csv)
    if arguments.data:
        write_page(arguments.data, json.dumps(data, indent=1) + "\n")
    return 1 if asked and not written else 0


def write_figure(drawn, folder, name):
    """Writes the figure's files; returns their paths."""
    style.finish(drawn.figure, drawn.title, drawn.handles, drawn.caption)
    paths = style.write(drawn.figure, folder, name)
    style.close(drawn.figure)
    return paths


def write_page(path, text, quiet=False):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if not quiet:
        print(path)


def write_report(arguments):
    write_page(arguments.out, report.render(*load(arguments)))
    return 0


def write_paper(arguments):
    index = read_json(arguments.index)
    loaded = []
    for entry in index["experiments"]:
        loaded.append(load_spec(entry["spec"], entry["id"], arguments.results))
        write_page(entry["report"], report.render(*loaded[-1]))
    write_page(arguments.out, paper.render(index, loaded, arguments.out))
    return 0


def _cells_of(arguments):
    experiment, _ = load(arguments)
    by_hash = {cell.hash: cell for cell in experiment.all_cells() if cell.n}
    for hash in (arguments.of, arguments.over):
        if hash not in by_hash:
            raise cells.SpecError(f"experiment '{experiment.id}': no cell with results has config_hash {hash}")
    return by_hash[arguments.of], by_hash[arguments.over]


def write_parts(arguments):
    of, over = _cells_of(arguments)
    found = {"of": explain.steps_by_block(of), "over": explain.steps_by_block(over)}
    Path(arguments.out).write_text(json.dumps(found) + "\n", encoding="utf-8")
    return 0


def explain_pair(arguments):
    of, over = _cells_of(arguments)
    found = read_json(arguments.found)
    text = found.pop("text")
    try:
        drawn = explain_picture.timelines(of, over, found)
        paths = write_figure(drawn, arguments.out, explain_picture.file_name(of, over))
        found["figures"], missing = list(map(str, paths)), ""
    except cells.NoData as reason:
        found["figures"], missing = [], f"not drawn: {reason}"
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        print(text)
        print("\n".join(found["figures"]) or missing)
    return 0


def draw_answer(module, arguments):
    """Draws what `sparfuse advise` or `sparfuse compare` found; `module` knows its form."""
    for name, drawn in module.drawings(read_json(arguments.data)):
        paths = write_figure(drawn, arguments.out, name)
        if not arguments.quiet:
            print(*paths, sep="\n")
    return 0


def write_site(arguments):
    for name, text in web.pages(read_json(arguments.data)):
        write_page(Path(arguments.out) / name, text, quiet=True)
    return 0


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="sparfuse_report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    spec, pair = ["results", "experiment", "spec", "out"], ["of", "over"]
    for verb, act, needed, optional, flags in (
        ("figure", draw_figures, spec, ["part", "figure", "data"], []),
        ("report", write_report, spec, [], []),
        ("parts", write_parts, [*spec, *pair], [], []),
        ("explain", explain_pair, [*spec, *pair, "found"], [], ["json"]),
        ("paper", write_paper, ["results", "index", "out"], [], []),
        ("phase", functools.partial(draw_answer, phase), ["data", "out"], [], ["quiet"]),
        ("rates", functools.partial(draw_answer, rates), ["data", "out"], [], ["quiet"]),
        ("compare", functools.partial(draw_answer, compare), ["data", "out"], [], ["quiet"]),
        ("site", write_site, ["data", "out"], [], []),
    ):
        sub = verbs.add_parser(verb)
        sub.set_defaults(act=act)
        for name in needed + optional:
            sub.add_argument(f"--{name}", required=name in needed)
        for name in flags:
            sub.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args(argv)
    try:
        status = arguments.act(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (cells.SpecError, series.SeriesError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
