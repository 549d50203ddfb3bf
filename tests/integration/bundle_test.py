"""Tests `sparfuse export`, `merge` and `verify` on the stores of two machines: what leaves, whose
trials are whose, and what a kill, a full disk or a hand does.

  bundle_test.py PATH/TO/sparfuse [unittest arguments]
"""

import gzip
import json
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import harness_test
import program

for folder in ("bench/store", "chaos"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))
import forgery  # noqa: E402  (found by the path above)
import make_store  # noqa: E402  (found by the path above)

SECRETS = {
    "token": "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "password": "correct-horse-battery",
    "home": "/users/alice", "user": "alice", "host": "node7.cluster.example.org", "short": "node7", "other": "login3", "process": "rival-job"}


class Bundles(harness_test.FakeTrials):
    """Makes stores and bundles of several machines, each in a folder of its own."""

    def command(self, *arguments, results="results"):
        return super().command(*arguments, results=self.folder / results)

    def call(self, *arguments, results="results", code=0, user=None, **options):
        environment = self.environment() | ({"USER": user} if user else {})
        done = subprocess.run(self.command(*arguments, results=results), env=environment, text=True,
                              capture_output=True, timeout=120, check=False, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + ("" if "--json" in arguments else done.stderr)

    def make_store(self, results, blocks=1, cores=None, methods='"wfbp"'):
        """Makes a store with trials of one setting; with `cores`, they look like another machine's."""
        self.write(blocks=blocks, **{"[1, 2, 3]": "[2]", '"dense", "wfbp", "syncea"': methods})
        self.call("run", self.file, results=results)
        if cores:
            for file in self.trial_files(results):
                self.edit(file, lambda trial: trial["system"].update(cores=cores))
        return self.folder / results

    def trial_files(self, results):
        return sorted((self.folder / results / "trials").rglob("trial.json"))

    def edit(self, file, change):
        """Changes a trial as if it had been recorded so: its hashes agree with its content."""
        trial = json.loads(file.read_text())
        change(trial)
        trial["system_hash"] = make_store.content_hash(trial["system"])
        trial["config_hash"] = make_store.config_hash(trial["config"])
        file.write_text(json.dumps(trial, indent=1, sort_keys=True) + "\n")

    def export(self, results, name=None):
        file = self.folder / f"{name or results}.sparfuse"
        self.call("export", "t", "--out", file, results=results)
        return file

    def content(self, results):
        folder = self.folder / results
        return {str(file.relative_to(folder)): file.read_bytes()
                for part in ("trials", "annotations") for file in (folder / part).rglob("*") if file.is_file()}


class BundleTest(Bundles):
    def test_two_machines_share_their_trials(self):
        self.make_store("a", blocks=2)
        self.make_store("b", blocks=2, cores=512)
        bundles = [self.export("a"), self.export("b")]
        self.assertIn("2 trial(s) added", self.call("merge", bundles[1], results="a"))
        self.call("merge", bundles[0], results="b")
        self.call("merge", *bundles, results="c")
        self.call("merge", bundles[1], bundles[0], bundles[1], results="d")
        self.assertEqual(self.content("c"), self.content("d"))
        together = [self.export(store, f"all-{store}").read_bytes() for store in "abcd"]
        self.assertEqual(together, 4 * [together[0]])
        # Tables keep the systems apart, and show either on request.
        status = json.loads(self.call("status", self.file, "--json", results="c"))
        systems = {trial["system"] for trial in status["trials"]}
        self.assertEqual(len(systems), 2)
        texts = [self.call("table", self.file, "--system", system, results="c") for system in systems]
        self.assertEqual(sum("512 cores" in text for text in texts), 1)
        self.assertIn("expected one of", self.call("table", self.file, "--system", "xyz", results="c", code=2))
        # The index has the merged trials, and a rebuilt index has the same rows.
        before = self.call("status", self.file, "--json", results="c")
        self.call("index", "--rebuild", results="c")
        self.assertEqual(self.call("status", self.file, "--json", results="c"), before)
        self.assertIn("nothing is missing", self.call("plan", self.file, results="a"))

    def test_two_machines_are_compared(self):
        both = '"dense", "wfbp"'
        self.make_store("a", blocks=2, methods=both)
        self.make_store("b", blocks=2, cores=512, methods=both)
        self.edit(self.trial_files("b")[0], lambda trial: trial.setdefault("environment", {}).update(NCCL_ALGO="Tree"))
        a, b = self.export("a"), self.export("b")
        text = self.call("compare", a, b, results="nowhere")
        self.assertRegex(text, r"environment.NCCL_ALGO +\| – +\| Tree \\\| not set +\| differs within one side")
        self.assertRegex(text, r"^a against b: 1 ratio to dense: 1 \w+")
        self.assertIn("| system.cores ", text)
        self.assertIn("512", text)
        numbers = json.loads(self.call("compare", a, b, "--json", results="nowhere"))
        [cell] = numbers["cells"]
        ratios = [cell["first_ratio"]["value"], cell["second_ratio"]["value"]]
        if cell["first_over_second"]:
            self.assertAlmostEqual(cell["first_over_second"]["value"], ratios[0] / ratios[1], places=9)
        same = json.loads(self.call("compare", a, a, "--json", results="nowhere"))
        self.assertIn(same["cells"][0]["verdict"], ("agree", "undecided"))
        self.assertEqual(same["differences"], [])
        # The same comparison works for systems of one store; errors list the known systems.
        self.call("merge", a, b, results="c")
        text = self.call("compare", results="c", code=2)
        heads = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
        self.assertEqual(len(heads), 2)
        again = json.loads(self.call("compare", *heads, "--json", results="c"))
        self.assertEqual(
            sorted(again["cells"][0][key]["value"] for key in ("first_ratio", "second_ratio")), sorted(ratios))
        self.assertIn("expected one of", self.call("compare", "xyz", heads[0], results="c", code=2))
        self.assertIn("have a common cell of quick", self.call("compare", *heads, "--experiment", "quick", results="c", code=2))

    def plan(self, results, units):
        """Changes the trials of safusion methods as if their plan had the given units: tensors of each."""
        plan = {"step": 0, "unit_sizes": units, "dense_units": [], "side_units": [],
                "tensors": {"dense": 0, "offloaded": 0, "reduced": 0}}
        layout = make_store.digits_layout()
        for file in self.trial_files(results):
            if "safusion" in file.parent.name:
                outcome = file.with_name("outcome.json")
                outcome.write_text(json.dumps({**json.loads(outcome.read_text()), "plans": [plan], "layout": layout}))
                self.edit(file, lambda trial: trial.update(layout=layout))

    def test_plans_of_one_system_are_measured_on_another(self):
        methods = '"dense", "safusion-inter"'
        # There is no profile of either machine.
        self.make_store("a", blocks=2, cores=256, methods=methods)
        self.make_store("b", blocks=2, cores=512, methods=methods)
        self.plan("a", "3,40")
        self.plan("b", "43")
        a, b, file = self.export("a"), self.export("b"), self.folder / "plans.toml"
        compare = ("compare", a, b, "--with-plan", "a")
        text = self.call(*compare, "--write-experiment", file, results="b")
        self.assertIn("Plans of a: 1 that another side plans differently", text)
        self.assertIn("sparfuse run", text)
        self.assertIn("expected the name of a new file",
                      self.call(*compare, "--write-experiment", file, results="b", code=2))
        self.call("run", file, results="b")
        for trial in self.trial_files("b"):
            self.edit(trial, lambda trial: trial["system"].update(cores=512))
        self.call("export", "t", "plan-of-a", "--out", b, results="b")
        [cell] = json.loads(self.call(*compare, "--json", results="b"))["cells"]
        forced = cell["second_forced"]
        self.assertEqual((forced["units"], forced["gain_mode"], forced["measured"]["n"]), ("3,40", "measured", 5))
        # Without a profile, a note says what to do; no modelled number decides.
        text = self.call("compare", a, b, "--transport", results="b")
        self.assertIn("measure it on a with `sparfuse profile digits-resnet --batch 32 --threads 1 --ranks 2`", text)
        for wrong, said in ((("--with-plan", "x"), 'no system that is compared has the name "x"'),
                            (("--profile", "b=x"), "expected with --transport or --with-plan"),
                            (("--transport", "--profile", "b"), "expected SYSTEM=NAME"),
                            (("--transport", "--profile", "b=x"), 'unknown cluster "x"')):
            self.assertIn(said, self.call("compare", a, b, *wrong, results="b", code=2))

    def test_new_trials_have_ids_of_their_own(self):
        self.make_store("a")
        self.make_store("b")
        ids = [json.loads(self.trial_files(store)[0].read_text())["trial_id"] for store in ("a", "b")]
        self.assertNotEqual(*ids)
        self.call("merge", self.export("a"), results="b")
        self.assertEqual(len(self.trial_files("b")), 2)
        before = self.content("b")
        self.call("merge", self.export("b"), results="b")
        self.assertEqual(self.content("b"), before)

    def check_pages(self, *names):
        """Checks that no page has these secrets, from private.json or from people's texts."""
        self.call("site", "--out", self.folder / "site", "--reference", "wfbp", results="a")
        self.call("report", self.file, results="a")
        pages = [file for place in (self.folder / "site", self.folder / "a" / "reports") for file in place.rglob("*")
                 if file.is_file()]
        self.assertTrue({"spec.json", "data.json"} <= {file.name for file in pages}, pages)
        for file in pages:
            for name in names:
                self.assertNotIn(SECRETS[name].encode(), file.read_bytes(), f"{name} in {file}")

    def test_secrets_stay(self):
        self.make_store("a")
        trial_file, = self.trial_files("a")

        words = " ".join(SECRETS[key] for key in ("host", "user", "token", "home"))

        def texts(value):
            """The value with the secrets in every text that a machine, a launcher or a user may fill."""
            if isinstance(value, dict):
                return {key: texts(each) for key, each in value.items()}
            return [texts(each) for each in value] if isinstance(value, list) else \
                f"{value} {words}" if isinstance(value, str) else value

        def plant(trial):
            for key in ("sampling", "software", "series", "sources", "fingerprint"):
                if key in trial:
                    trial[key] = texts(trial[key])
            trial["environment"].update(TOKEN=SECRETS["token"], OMP_NUM_THREADS=SECRETS["password"],
                                        NCCL_ALGO=words)
            hosts = [SECRETS["host"], f"{SECRETS['other']}.example.net"]
            trial["machine"] = {"placement": hosts, "communication_threads": words, "cores": 2,
                                "kernels": words, "cuda_devices": 1, "cards": [f"cuda:0 {words}", "cpu"],
                                "gpus": {"driver": words, "cuda": words, "topology": [],
                                         "cards": [{"index": 0, "name": words, "uuid": SECRETS["password"],
                                                    "pci": SECRETS["password"]}]}}
            trial["software"] = {"compiler": f"g++ of {SECRETS['home']}/bin {words}", "cuda_build": words}
            trial["quiet"] = {"other_cpu": 0, "stolen": 0, "resolution": 0.01, "seconds": 1, "cores": 2,
                              "quota": None, "clock_mhz": [None, None], "load": [None, None], "pressure": None,
                              "own_cpu_seconds": 0, "involuntary_switches": 0, "loop_seconds": [0.001],
                              "cards": {"other_processes": [SECRETS["process"]], "held_down_by": [words]},
                              "limits": {"other_cpu": 0.05, "stolen": 0.02, "slowdown": 1.2}, "slowdown": 1.0,
                              "disturbed": True, "causes": {"other_processes": 1.0, "held_down_by": 1.0}, "why": words}
            trial["files"].append(SECRETS["home"])
            trial["config"]["api_token"] = SECRETS["token"]
            trial["config"]["workload_options"]["note"] = words
            trial["system"].update(cpu_model=words, kernel=words)
            trial["launch"] = {"id": "t", "trials": 1, "failed_on": SECRETS["host"], "warnings": [words],
                               "binding": {"hosts": hosts, "cores": ["0", "0"], "numa": ["0", "0"],
                                           "card": [SECRETS["password"], None], "interface": ["eth1", None]},
                               "network": {"interface": None, "hosts": hosts,
                                           "bytes": [{}, {}], "others": [[], ["eth0"]]}}

        folder = trial_file.parent
        apart = json.loads((folder / "private.json").read_text())
        apart.update(hosts=[SECRETS["host"], SECRETS["other"]], users=[SECRETS["user"]], failure=words,
                     log_tail=words, processes=[SECRETS["process"]], environment={"HOME": SECRETS["home"]})
        (folder / "private.json").write_text(json.dumps(apart))
        # Another user than the store's exports.
        self.call("annotate", json.loads(trial_file.read_text())["trial_id"], "--reason",
                  f"see {SECRETS['home']}/notes, {SECRETS['token']}; {SECRETS['short']} and {SECRETS['other']} were "
                  f"rebooted by {SECRETS['user']}.", results="a", user=SECRETS["user"])
        self.check_pages("password", "token", "home", "process", "host")
        self.edit(trial_file, plant)
        config = json.loads((folder / "config.json").read_text())
        config["workload_options"]["note"] = words
        config["api_token"] = SECRETS["token"]
        (folder / "config.json").write_text(json.dumps(config))
        outcome = json.loads((folder / "outcome.json").read_text())
        planted = json.loads(trial_file.read_text())
        outcome.update({key: planted[key] for key in ("machine", "software", "quiet", "sampling", "series") if key in planted})
        outcome.update(reason=words, assumed=[words], plan=words, plans=[{"step": words}], selection=words)
        (folder / "outcome.json").write_text(json.dumps(outcome))
        self.check_pages(*SECRETS)
        (folder / "log.txt").write_text("\n".join(SECRETS.values()))
        (folder / "failure-rank1.json").write_text(json.dumps(SECRETS))
        (folder / "steps.npy").write_text(SECRETS["token"])
        (folder / SECRETS["password"]).write_text(SECRETS["password"])
        bundle = self.export("a")
        for member, content in [("the file", bundle.read_bytes()), *forgery.unpacked(bundle).items()]:
            for name, secret in SECRETS.items():
                self.assertNotIn(secret.encode(), content, f"{name} in {member}")
                self.assertNotIn(secret, member)
        # In its own store it is the same trial for every user who merges it.
        for user in (SECRETS["user"], "bob"):
            self.assertIn("0 trial(s) added, 1 already here, 0 annotation(s) added, 0 refused",
                          self.call("merge", bundle, results="a", user=user))
        shown = self.call("export", "t", "--show", results="a")
        leaves, stays = shown.split("stays here:")
        for key in ("argv", "environment", "hosts", "users", "failure", "log_tail", "processes"):
            self.assertIn(f"private.json: {key}\n", stays)
        self.assertNotIn("api_token", shown)
        self.assertNotIn("argv", leaves)
        for key in ("log.txt", "failure-rankR.json", "steps.npy", "files of other names"):
            self.assertIn(key, stays)
        self.assertIn("number   trial.json: config.workers\n", leaves)
        self.assertIn('"leaves"', self.call("export", "t", "--show", "--json", results="a"))
        self.call("verify", bundle)
        self.call("merge", bundle, results="a")
        self.call("merge", bundle, results="b")
        self.assertEqual(self.export("b").read_bytes(), bundle.read_bytes())

    def test_equal_trials_give_equal_bytes_and_an_edited_one_is_found(self):
        self.make_store("a", blocks=2)
        bundle = self.export("a")
        self.assertEqual(bundle.read_bytes(), self.export("a", "again").read_bytes())
        self.assertIn("all hashes agree", self.call("verify", bundle, results="nowhere"))
        self.assertFalse((self.folder / "nowhere").exists())
        table = json.loads(self.call("verify", bundle, "--json"))["table"]
        self.assertEqual(table[0]["metrics"]["step_seconds"]["value"], 0.25)
        self.assertEqual(len(table[0]["trials"]), 2)
        edited = self.folder / "edited.sparfuse"
        good = bundle.read_bytes()
        at = good.index(b'"value": 0.25', good.index(b"trials/t"))
        edited.write_bytes(good[:at] + good[at:].replace(b"0.25", b"0.15", 1))
        self.assertRegex(self.call("verify", edited, code=1), r"outcome\.json: SHA-256 .* edited or damaged")
        self.assertRegex(self.call("merge", edited, results="b", code=1), "1 trial.s. added, .* 1 refused")
        self.assertEqual(len(self.trial_files("b")), 1)
        self.assertIn("1 trial(s) added", self.call("merge", bundle, results="b"))
        draw = random.Random(1)
        for _ in range(20):
            at = draw.randrange(len(good))
            edited.write_bytes(good[:at] + bytes([good[at] ^ 1 << draw.randrange(8)]) + good[at + 1:])
            self.call("verify", edited, code=1)

    def test_what_is_no_bundle_or_of_the_future_is_refused(self):
        self.make_store("a")
        bundle = self.export("a")
        future = self.folder / "future.sparfuse"
        future.write_bytes(bundle.read_bytes().replace(b'"bundle_version": 3', b'"bundle_version": 9'))
        self.assertRegex(self.call("verify", future, code=1), r"bundle_version 9: this sparfuse reads 1 to 3.*verify")
        # The other bundles are merged nevertheless.
        said = self.call("merge", future, self.file, bundle, results="b", code=1)
        self.assertIn("bundle_version 9", said)
        self.assertIn("t.toml: it does not begin with manifest.json", said)
        packed = self.folder / "packed.sparfuse.gz"
        packed.write_bytes(gzip.compress(b"a bundle"))
        said = self.call("verify", packed, code=1)
        self.assertIn(f"it is compressed by gzip: expected a bundle, which `gunzip --keep {packed}` makes of it", said)
        self.assertEqual(len(self.trial_files("b")), 1)
        self.assertIn("known: t", self.call("export", "nothing", "--show", results="a", code=2))
        self.assertIn(".sparfuse", self.call("export", "t", "--out", "x.tar", results="a", code=2))

    def test_a_kill_leaves_whole_files_or_none(self):
        subprocess.run([sys.executable, make_store.__file__, self.program, self.folder / "large", "300"],
                       check=True, timeout=120)
        large, draw = "large/results", random.Random(2)
        bundle = self.folder / "large.sparfuse"

        def killed(*arguments, results):
            child = subprocess.Popen(self.command(*arguments, results=results), stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            time.sleep(draw.uniform(0, 0.4))
            child.send_signal(signal.SIGKILL)
            return child.wait() != 0

        for _ in range(5):
            killed("export", "large", "--out", bundle, results=large)
            if bundle.exists():  # the signal came after the end, or not at all
                self.call("verify", bundle)
                bundle.unlink()
        self.call("export", "large", "--out", bundle, results=large)
        self.call("verify", bundle)
        for _ in range(5):
            killed("merge", bundle, results="killed")
        self.call("merge", bundle, results="killed")
        self.call("merge", bundle, results="whole")
        self.assertEqual(self.content("killed"), self.content("whole"))
        self.assertEqual(len(self.trial_files("whole")), 300)

    def test_a_full_disk_is_an_error_and_the_next_call_goes_on(self):
        self.make_store("a", blocks=3)
        bundle = self.export("a")

        def full():  # limits the size of files; Python and its child ignore the signal
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        small = self.folder / "small.sparfuse"
        said = self.call("export", "t", "--out", small, results="a", code=1, preexec_fn=full,
                         restore_signals=False)
        self.assertIn(str(small), said)
        self.assertEqual([*self.folder.glob("small*")], [])
        self.call("merge", bundle, results="b", code=1, preexec_fn=full, restore_signals=False)
        self.assertEqual(self.trial_files("b"), [])
        self.call("merge", bundle, results="b")
        self.call("merge", bundle, results="c")
        self.assertEqual(self.content("b"), self.content("c"))

    def test_a_full_disk_is_read_like_a_read_only_one(self):
        self.make_store("a", blocks=2)
        table = self.call("table", self.file, results="a")

        def full():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        for index in (None, b""):  # no index, and an empty one, which must be rebuilt
            file = self.folder / "a" / "index.sqlite"
            file.unlink()
            if index is not None:
                file.write_bytes(index)
            for verb in (("table", self.file), ("status", self.file)):
                said = self.call(*verb, results="a", preexec_fn=full, restore_signals=False)
                self.assertIn("the trials are read without it", said)
                if verb[0] == "table":
                    self.assertTrue(said.endswith(table) or table in said, said)
            self.assertEqual([*(self.folder / "a").glob("index.sqlite.new*")], [])
            self.assertEqual(self.call("table", self.file, results="a"), table)  # the disk has room again

    def test_annotations_of_others_take_own_trials_out_when_told_to(self):
        self.make_store("a")
        trial, = json.loads(self.call("status", self.file, "--json", results="a"))["trials"]
        self.call("merge", self.export("a"), results="b")
        self.call("annotate", trial["trial_id"], "--reason", "too good", results="b")
        theirs = self.export("b")
        said = self.call("merge", theirs, results="a")
        self.assertIn(f"called bad by others: {trial['trial_id']} (too good)", said)
        self.assertIn("--take-annotations", said)
        self.assertNotIn("left out", self.call("status", self.file, results="a"))
        said = self.call("merge", theirs, "--take-annotations", results="a")
        self.assertIn(f"taken out: {trial['trial_id']}", said)
        self.assertIn("too good", self.call("status", self.file, results="a"))

    def test_compare_leaves_a_bad_trial_out(self):
        self.make_store("a", blocks=3, methods='"dense", "wfbp"')
        whole = self.export("a")
        # A bundle of a program without checks: its table agrees with its trials.
        members = forgery.unpacked(whole)
        name = next(each for each in members if each.endswith("outcome.json") and "wfbp" in each)
        outcome = json.loads(members[name])
        outcome["metrics"]["step_seconds"]["value"] = 0.5
        members[name] = (json.dumps(outcome, indent=1, sort_keys=True) + "\n").encode()
        forged = self.folder / "forged.sparfuse"
        forged.write_bytes(forgery.bundled(members))
        self.assertIn("outcome.json has", self.call("verify", forged, code=1))
        said = self.call("compare", whole, forged)
        self.assertIn(f"trials/{name.removeprefix('trials/').removesuffix('/outcome.json')}: metrics: trial.json has", said)
        self.assertIn("; left out", said)
        self.assertIn("1 refused", self.call("merge", forged, results="c", code=1))
        self.assertEqual(len(self.trial_files("c")), 5)

    def test_what_the_project_shows_is_drawn_without_its_data(self):
        root = Path(__file__).resolve().parents[2]
        for packed in sorted((root / "results/shown").glob("*.sparfuse.gz")):
            file = self.folder / packed.stem
            file.write_bytes(gzip.decompress(packed.read_bytes()))
            results = file.stem
            self.call("merge", file, results=results)
            experiment = packed.name.removesuffix(".sparfuse.gz").replace("-", "/", 1)
            command = self.command("table", experiment, results=results)
            done = subprocess.run(command, env=self.environment() | {"SPARFUSE_DATA": str(self.folder / "none")},
                                  text=True, capture_output=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(" ± ", done.stdout)
            self.assertNotIn("not run", done.stdout)


if __name__ == "__main__":
    program.main()
