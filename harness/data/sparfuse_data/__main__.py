"""Prepares data sets for training, and lists and checks prepared ones; `sparfuse data` calls it.

  PYTHONPATH=harness/data python -m sparfuse_data VERB ...

  sparfuse_data prepare NAME --from PLACE --out FOLDER [--val-labels FILE] [--tokenizer PLACE]
                        [--window N] [--stride N] [--question N] [--accept]
      recognises the data set at PLACE by itself and writes its prepared form.
  sparfuse_data list DATA [--json]
      the prepared folders in the folder DATA.
  sparfuse_data check FOLDER
      whether all files are as they were written, and some images can be decoded.
  sparfuse_data score FOLDER PREDICTIONS
      SQuAD's exact match and F1 of a JSON file {"ID": "answer"} against prepared questions.
  sparfuse_data weights FILE OUT.safetensors
      weights of PyTorch or safetensors, in one or several files, as one safetensors file.

Exit codes: 0 done, 1 something is wrong with the data, 2 usage, 130 interrupted.
"""

import argparse
import json
import sys

from . import folders, scoring, weights
from .errors import DataError
from .prepare import prepare


def _list(data, as_json):
    entries = list(folders.every(data))
    if as_json:
        print(json.dumps([entry if isinstance(entry, dict) else {"name": folder.name,
                                                                  "error": str(entry)}
                          for folder, entry in entries], indent=1))
        return
    if not entries:
        print(f"no prepared data in {data}; `sparfuse data prepare NAME --from PLACE` makes some")
    for folder, entry in entries:
        if isinstance(entry, DataError):
            print(f"{folder.name}: {entry}")
            continue
        what = (f"{entry['classes']} classes" if entry["kind"] == "images" else
                f"a vocabulary of {entry['vocabulary']:,}")
        counts = ", ".join(f"{count:,} of {name}" for name, count in sorted(entry["counts"].items()))
        print(f"{entry['name']:16} {entry['id'][:16]}  {entry['kind']}, {what}, {counts}, "
              f"{entry['bytes'] / 1e6:,.1f} MB, from {entry['source']}")


def main(arguments):
    parser = argparse.ArgumentParser(prog="sparfuse_data", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("prepare")
    verb.add_argument("name")
    verb.add_argument("--from", dest="place", required=True)
    verb.add_argument("--out", required=True)
    verb.add_argument("--val-labels")
    verb.add_argument("--tokenizer")
    for name in ("window", "stride", "question"):
        verb.add_argument(f"--{name}", type=int)
    verb.add_argument("--accept", action="store_true")
    verb = verbs.add_parser("list")
    verb.add_argument("data")
    verb.add_argument("--json", action="store_true")
    for name, places in (("check", ["folder"]), ("score", ["folder", "predictions"]), ("weights", ["file", "out"])):
        verb = verbs.add_parser(name)
        for place in places:
            verb.add_argument(place)
    asked = parser.parse_args(arguments)
    try:
        if asked.verb == "prepare":
            prepare(asked.name, asked.place, asked.out, labels=asked.val_labels,
                    tokenizer=asked.tokenizer, accept=asked.accept,
                    windows={name: value for name in ("window", "stride", "question")
                             if (value := getattr(asked, name)) is not None})
        elif asked.verb == "score":
            print(json.dumps(scoring.score(asked.folder, asked.predictions)))
        elif asked.verb == "weights":
            weights.prepare(asked.file, asked.out)
        elif asked.verb == "list":
            _list(asked.data, asked.json)
        else:
            print(f"{asked.folder}: id {folders.check(asked.folder)}, as it was written")
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or asked.verb}: {error.strerror or error}; expected files that can be "
              "read and folders that can be written", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command continues with the rest", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
