"""Figures and the report of one experiment, or of all of a paper's, from the store only.

  render.py figure --results DIR --experiment ID --spec spec.json --out DIR
                   [--part P] [--figure NAME]      NAME is a figure's name or kind
      PNG (150 dpi), PDF and SVG for each figure, and CSV for the numbers of one that shows a paper's
      beside ours; prints the files written.
  render.py report --results DIR --experiment ID --spec spec.json --out FILE.html
      one self-contained HTML file.
  render.py paper  --results DIR --index index.json --out FILE.html
      that file for each experiment of the index, and a page over them.
  render.py explain --results DIR --experiment ID --spec spec.json --out DIR
                    --of TRIAL... --over TRIAL... [--json]
      why the steps of two cells, given by the trials of theirs that count, take unequal time:
      text or JSON, and two timelines in the formats of figures.

Needs Python 3.11, numpy and matplotlib. Exit codes: 0 done, 1 nothing of what --part
or --figure asked for could be drawn, 2 usage or input.
"""

import argparse
import json
import sys
from pathlib import Path

import cells as selection
import explain
import explain_picture
import explain_words
import kinds
import paper
import report
import series
import style
import tables
from store import Store, StoreError


def read_json(path):
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise selection.SpecError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise selection.SpecError(f"{path}: not JSON: {error}") from error


def load_spec(path, name, store):
    spec = read_json(path)
    if spec.get("id", name) != name:
        raise selection.SpecError(f"{path}: describes '{spec['id']}'; expected '{name}'")
    experiment = selection.Experiment({**spec, "id": name}, store)
    return experiment, style.Styles(experiment.methods)


def load(arguments):
    return load_spec(arguments.spec, arguments.experiment, Store(arguments.results))


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


def write_page(path, text):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path)


def write_report(arguments):
    write_page(arguments.out, report.render(*load(arguments)))
    return 0


def write_paper(arguments):
    index, store = read_json(arguments.index), Store(arguments.results)
    loaded = []
    for entry in index["experiments"]:
        loaded.append(load_spec(entry["spec"], entry["id"], store))
        write_page(entry["report"], report.render(*loaded[-1]))
    write_page(arguments.out, paper.render(index, loaded, arguments.out))
    return 0


def _cell_of(experiment, trial_ids):
    """The cell that made these trials, which from now on has no others."""
    for cell in experiment.all_cells():
        chosen = {trial.block: trial for trial in cell.all_trials if trial.trial_id in trial_ids}
        if chosen:
            cell.trials = chosen
            return cell
    raise selection.SpecError(
        f"no cell of experiment '{experiment.id}' has trial {trial_ids[0]}; "
        "expected ids of trials in the store"
    )


def explain_pair(arguments):
    experiment, styles = load(arguments)
    of, over = _cell_of(experiment, arguments.of), _cell_of(experiment, arguments.over)
    found = {"experiment": experiment.id, **explain.compare(of, over)}
    found["within_noise"] = explain_words.within_noise(found)  # null: computed, has none
    found["conclusion"] = explain_words.conclusion(found)
    try:
        drawn = explain_picture.timelines(of, over, found)
        style.finish(drawn.figure, drawn.title, drawn.handles, drawn.caption)
        name = explain_picture.file_name(of, over)
        found["figures"] = [str(path) for path in style.write(drawn.figure, arguments.out, name)]
        style.close(drawn.figure)
        missing = ""
    except selection.NoData as reason:
        found["figures"], missing = [], f"not drawn: {reason}"
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        print(explain_words.words(found))
        print("\n".join(found["figures"]) or missing)
    return 0


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="render.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, act in (
        ("figure", draw_figures),
        ("report", write_report),
        ("explain", explain_pair),
    ):
        sub = verbs.add_parser(verb)
        sub.add_argument("--results", required=True)
        sub.add_argument("--experiment", required=True)
        sub.add_argument("--spec", required=True)
        sub.add_argument("--out", required=True)
        if verb == "figure":
            sub.add_argument("--part")
            sub.add_argument("--figure")
        if verb == "explain":
            sub.add_argument("--of", nargs="+", required=True)
            sub.add_argument("--over", nargs="+", required=True)
            sub.add_argument("--json", action="store_true")
        sub.set_defaults(act=act)
    sub = verbs.add_parser("paper")
    for option in ("--results", "--index", "--out"):
        sub.add_argument(option, required=True)
    sub.set_defaults(act=write_paper)
    arguments = parser.parse_args(argv)
    try:
        return arguments.act(arguments)
    except (selection.SpecError, StoreError, series.SeriesError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
