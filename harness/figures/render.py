"""Figures and the report of one experiment, from the store only.

  render.py figure --results DIR --experiment ID --spec spec.json --out DIR
                   [--part P] [--figure NAME]      NAME is a figure's name or kind
      PNG (150 dpi), PDF and SVG for each figure, and CSV for the numbers of one that shows a paper's
      beside ours; prints the files written.
  render.py report --results DIR --experiment ID --spec spec.json --out FILE.html
      one self-contained HTML file.

Needs Python 3.11, numpy and matplotlib. Exit codes: 0 done, 1 nothing of what --part
or --figure asked for could be drawn, 2 usage or input.
"""

import argparse
import json
import sys
from pathlib import Path

import cells as selection
import cols
import kinds
import report
import style
import tables
from store import Store, StoreError


def load(arguments):
    path = Path(arguments.spec)
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise selection.SpecError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise selection.SpecError(f"{path}: not JSON: {error}") from error
    if spec.get("id", arguments.experiment) != arguments.experiment:
        raise selection.SpecError(
            f"{path}: describes '{spec['id']}'; expected '{arguments.experiment}'"
        )
    experiment = selection.Experiment(
        {**spec, "id": arguments.experiment}, Store(arguments.results)
    )
    return experiment, style.Styles(experiment.methods)


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
        experiment.part(arguments.part)  # names the parts there are
    figures = [
        (part, entry, name)
        for part, entry, name in name_figures(experiment)
        if (not arguments.part or part.id == arguments.part)
        and (not arguments.figure or arguments.figure in (name, entry.get("kind")))
    ]
    asked = arguments.part or arguments.figure
    if not figures and asked:
        raise selection.SpecError(
            f"experiment '{experiment.id}' has no such figure; it has "
            f"{', '.join(name for *_, name in name_figures(experiment)) or 'none'}"
        )
    written = 0
    for part, entry, name in figures:
        if entry.get("kind") not in kinds.KINDS:
            raise selection.SpecError(
                f"figure '{name}': unknown kind '{entry.get('kind')}'; "
                f"known: {', '.join(kinds.KINDS)}"
            )
        try:
            drawn = kinds.KINDS[entry["kind"]](experiment, part, entry, styles)
        except selection.NoData as reason:
            print(f"{name}: not drawn: {reason}", file=sys.stderr)
            continue
        style.finish(drawn.figure, drawn.title, drawn.handles, drawn.caption)
        for path in style.write(drawn.figure, arguments.out, name):
            print(path)
        for path in tables.write_csv(drawn.tables, arguments.out, name):
            print(path)
        style.close(drawn.figure)
        written += 1
    return 1 if asked and not written else 0


def write_report(arguments):
    experiment, styles = load(arguments)
    text = report.render(experiment, styles)
    out = Path(arguments.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(out)
    return 0


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="render.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, act in (("figure", draw_figures), ("report", write_report)):
        sub = verbs.add_parser(verb)
        sub.add_argument("--results", required=True)
        sub.add_argument("--experiment", required=True)
        sub.add_argument("--spec", required=True)
        sub.add_argument("--out", required=True)
        if verb == "figure":
            sub.add_argument("--part")
            sub.add_argument("--figure")
        sub.set_defaults(act=act)
    arguments = parser.parse_args(argv)
    try:
        return arguments.act(arguments)
    except (selection.SpecError, StoreError, cols.SeriesError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
