"""Tests that nothing which a trial says is markup, a control character or an unchecked type, on any
page or terminal, and that a bad trial stops no verb: one store gets a trial for every key of the
records and every kind of harm, found by walking what `export --show` lists and what a trial has.

  hostile_test.py PATH/TO/sparfuse [unittest arguments]
"""

import copy
import html.parser
import json
import re
import subprocess
import sys
from pathlib import Path

import harness_test
import program

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench" / "store"))
import make_store  # noqa: E402  (found by the path above)

NOT_PLAIN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
MARKUP = "<textarea><script>harm()</script><!--<plaintext>'\""
CONTROLS = ("\x1b]0;title\x07", "\u202eevil", "\u009b31m", "a\x7fb", "two\rlines")
OF_OTHER_TYPES = (None, [], {}, [None, {"x": [1]}], {"x": None}, True, -1, 0.5, 2**63, 1e308, "text", "x" * 60000)
VERBS = (("status",), ("status", "--json"), ("table",), ("table", "--json"), ("table", "--format", "latex"),
         ("plan",), ("plan", "--why"))


def places(value, at=()):
    """Yields the path of each value inside a value, through tables and lists."""
    yield at
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*at, key))


def put(value, path, hostile):
    """Puts `hostile` at a path, and makes missing tables on the way."""
    for i, key in enumerate(path[:-1]):
        if isinstance(value, list):
            value = value[key]
            continue
        following = value.get(key)
        if not isinstance(following, (dict, list)) or isinstance(following, list) != isinstance(path[i + 1], int):
            following = value[key] = {}
        value = following
    value[path[-1]] = hostile


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.add(tag)


class HostileTest(harness_test.FakeTrials):
    def call(self, *arguments, codes=(0, 1)):
        done = subprocess.run(self.command(*arguments), env=self.environment(), capture_output=True, timeout=500,
                              check=False)
        said = (done.stdout + done.stderr).decode()
        with self.subTest(verb=arguments):
            self.assertIn(done.returncode, codes, said[-2000:])
            self.assertNotIn("json.exception", said)
            self.assertNotIn("Traceback", said)
            self.assertEqual(sorted({hex(ord(found)) for found in NOT_PLAIN.findall(said)}), [])
        return done.stdout.decode(), done.stderr.decode()

    def good_trial(self):
        self.write(blocks=1, **{"[1, 2, 3]": "[2]", '"dense", "wfbp", "syncea"': '"wfbp"'})
        self.call("run", self.file)
        file, = (self.results / "trials").rglob("trial.json")
        return file

    def paths(self, trial):
        """The paths of all keys that a trial.json may have: those of this trial, and those of the bundle's
        list of keys."""
        found = {path for path in places(trial) if path}
        shown, _ = self.call("export", "t", "--show", "--json")
        for key in json.loads(shown)["leaves"]:
            head, _, rest = key.partition(": ")
            if head == "trial.json":
                found.add(tuple("x" if part == "*" else part for part in rest.split(".")))
        return sorted(found, key=str)

    def store(self, good, harms):
        """Adds a trial for each (path, value) of `harms`; returns {trial's id: path}."""
        trial, config = json.loads(good.read_text()), json.loads(good.with_name("config.json").read_text())
        made = {}
        for number, (path, value) in enumerate(harms):
            own = copy.deepcopy(trial)
            name = own["trial_id"] = f"{trial['experiment']}/{trial['part']}/hostile{number}-b{trial['block']}-1"
            own["launch"]["id"] = f"{name}.1"  # trials of one launch must agree on it
            put(own, path, value)
            for key in ("config", "system"):
                if path[0] in (key, "block") and isinstance(own.get(key), dict):
                    try:
                        hashed = make_store.config_hash if key == "config" else make_store.content_hash
                        own[f"{key}_hash"] = hashed(own[key])
                    except (AttributeError, KeyError, TypeError, ValueError):
                        pass  # the changed value has no such hash
            folder = self.results / "trials" / name
            folder.mkdir()
            (folder / "trial.json").write_text(json.dumps(own, indent=1, sort_keys=True))
            own_config = {**config, "trial_id": name}
            if isinstance(own.get("config"), dict):
                own_config.update(own["config"])
            (folder / "config.json").write_text(json.dumps(own_config, indent=1, sort_keys=True))
            made[name] = path
        return made

    def check_pages(self):
        self.call("site", "--out", self.folder / "site")
        self.call("report", self.file)
        pages = [file for folder in (self.folder / "site", self.results / "reports") for file in folder.rglob("*.html")]
        self.assertTrue(pages)
        for file in pages:
            text = file.read_text()
            with self.subTest(page=file.name):
                self.assertEqual(sorted({hex(ord(found)) for found in NOT_PLAIN.findall(text)}), [])
                self.assertEqual(Tags(text).found & {"textarea", "plaintext"}, set())
                self.assertNotIn("<script>harm", text)

    def check(self, kinds, pages):
        good = self.good_trial()
        paths = self.paths(json.loads(good.read_text()))
        self.assertGreater(len(paths), 100)
        made = self.store(good, [(path, value) for path in paths for value in kinds])
        bundle = self.folder / "t.sparfuse"
        for verb, *options in VERBS:
            self.call(verb, self.file, *options)
        shown, warned = self.call("status", self.file, "--json")
        listed = {trial["trial_id"] for trial in json.loads(shown)["trials"]}
        self.assertIn(str(good.parent.relative_to(self.results / "trials")), listed)
        lost = {name: path for name, path in made.items() if name not in listed and name not in warned
                and path[0] not in ("experiment", "schema")}  # another experiment's, or older: counted
        self.assertEqual(lost, {})
        self.call("export", "t", "--out", bundle)
        self.call("verify", bundle)
        self.results = self.folder / "other"
        self.call("merge", bundle)
        self.call("status", self.file)
        self.results = self.folder / "results"
        self.call("compare", bundle, bundle, codes=(0, 1, 2))  # 2: only one method in common
        if pages:
            self.check_pages()

    def test_controls_and_markup_of_every_key_of_outcomes(self):
        """Tests the keys that runs and reports read from outcome.json, which are as unsafe."""
        good = self.good_trial()
        trial, config = json.loads(good.read_text()), json.loads(good.with_name("config.json").read_text())
        outcome = json.loads(good.with_name("outcome.json").read_text())
        shown, _ = self.call("export", "t", "--show", "--json")
        paths = {path for path in places(outcome) if path}
        for key in json.loads(shown)["leaves"]:
            head, _, rest = key.partition(": ")
            if head == "outcome.json":
                paths.add(tuple("x" if part == "*" else part for part in rest.split(".")))
        self.assertGreater(len(paths), 40)
        harms = [(path, value) for path in sorted(paths, key=str) for value in (MARKUP, CONTROLS[1], [{"x": None}])]
        for number, (path, value) in enumerate(harms):
            name = f"{trial['experiment']}/{trial['part']}/hostile-b{number}-1"
            folder, own = self.results / "trials" / name, copy.deepcopy(outcome)
            put(own, path, value)
            folder.mkdir()
            for file, content in (("trial.json", {**trial, "trial_id": name, "block": number}),
                                  ("config.json", {**config, "trial_id": name, "block": number}),
                                  ("outcome.json", own)):
                (folder / file).write_text(json.dumps(content, indent=1, sort_keys=True))
        bundle = self.folder / "t.sparfuse"
        for verb, *options in (*VERBS, ("report",), ("explain", "--of", "method=wfbp", "--over", "method=wfbp")):
            self.call(verb, self.file, *options, codes=(0, 1, 2))
        self.call("export", "t", "--out", bundle)
        self.call("verify", bundle)
        self.call("compare", bundle, bundle, codes=(0, 1, 2))
        if harness_test.HAS_MATPLOTLIB:
            self.check_pages()

    def test_controls_and_markup_of_every_key(self):
        self.check((MARKUP, CONTROLS[1]), pages=False)

    def test_controls_of_every_kind(self):
        self.check(CONTROLS, pages=harness_test.HAS_MATPLOTLIB)

    def test_other_types_of_every_key(self):
        self.check(OF_OTHER_TYPES, pages=False)

    def test_pages_of_markup_in_every_key(self):
        self.check((MARKUP,), pages=harness_test.HAS_MATPLOTLIB)

    def test_a_time_that_is_none_is_no_trial(self):
        good = self.good_trial()
        times = ("9999-99-99T99:99:99Z", "2026-02-30T00:00:00Z", "<textarea>", "", "2026-01-01", "2026-01-01T24:00:00Z",
                 "2026-01-01T00:00:00", "2026-01-01T00:00:00.Z")
        made = self.store(good, [(("started_utc",), time) for time in times])
        shown, warned = self.call("status", self.file, "--json")
        self.assertEqual(len(json.loads(shown)["trials"]), 1)
        for name in made:
            self.assertIn(f"{name}/trial.json: started_utc", warned)

    def test_a_site_without_dense_takes_what_experiments_name(self):
        if not harness_test.HAS_MATPLOTLIB:
            self.skipTest("no matplotlib")
        self.good_trial()
        _, said = self.call("site", "--out", self.folder / "site", codes=(0,))
        self.assertIn("note: the store has no trial of dense: ratios are relative to wfbp", said)
        _, said = self.call("site", "--out", self.folder / "site", "--reference", "zen", codes=(2,))
        self.assertIn("--reference zen: expected a method of the store: wfbp", said)


if __name__ == "__main__":
    program.main()
