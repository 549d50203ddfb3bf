"""Tests real trials of methods that synchronise once in a window of steps.

  local_steps_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import shutil
import signal
import sys
from pathlib import Path
from unittest import mock

import numpy as np

for folder in ("..", "../../chaos", "../../bench/store"):
    sys.path.insert(0, str(Path(__file__).resolve().parent / folder))
import forgeries
import forgery
import trial_test

THREADS = 'transport = "threads"\n'
# (method, its options, the steps at which it sends). A window has 4 steps; of two fragments, one is due
# every second step.
METHODS = (
    ("local-sgd", "every = 4", [4, 8, 12]),
    ("diloco", "every = 4", [4, 8, 12]),
    ("streaming-diloco", "every = 4, fragments = 2, stripes = 1, delay = 1", [2, 4, 6, 8, 10, 12]),
    ("shadowsync", "every = 4, delay = 2", [4, 8, 12]),
    ("sparseloco", "every = 4", [4, 8, 12]),
)
BESIDE = "every = 4, delay = 3"  # an exchange is nearly always under way


def with_options(options, more=""):
    return f"method_options = {{ {options} }}\n{more}"


class LocalStepsTest(trial_test.Trials):
    def outcome(self):
        return json.loads(next(self.results.rglob("outcome.json")).read_text())

    def rank_zero(self, trial):
        steps = self.series(trial, "steps.npy")
        return steps[steps["rank"] == 0]

    def test_each_method_sends_at_its_dates_alone(self):
        for method, options, dates in METHODS:
            with self.subTest(method):
                trial = self.run_trial(method=method, steps=8, more=with_options(options, THREADS))
                self.assertEqual(trial["status"], "ok", trial)
                checks = {"anchors_equal": True, "loss_finite": True}
                self.assertEqual(trial["checks"], checks | ({"mass_conserved": True} if method == "sparseloco" else {}))
                steps = self.rank_zero(trial)
                self.assertEqual(steps["measured"].tolist(), [False] * 4 + [True] * 8)  # 2 become a window
                counted = (steps["step"][steps["messages_sent"] > 0] + 1).tolist()
                self.assertEqual(counted, dates)
                self.assertTrue(((steps["exchanges"] > 0) == (steps["messages_sent"] > 0)).all())
                metrics = {name: metric["value"] for name, metric in trial["metrics"].items()}
                elements = sum(tensor["numel"] for tensor in self.outcome()["layout"])
                if method != "sparseloco":  # in a ring of two ranks, each sends as many bytes as the model has
                    self.assertEqual(metrics["window_bytes"], 4 * elements)
                self.assertGreater(metrics["replica_divergence"], 0)
                self.assertGreater(metrics["outer_seconds"], 0)
                self.assertAlmostEqual(metrics["window_seconds"], 4 * metrics["step_seconds"])
                # A method keeps the anchor and its largest fragment; DiLoCo's methods keep a momentum, too.
                sizes = [tensor["numel"] for tensor in self.outcome()["layout"]]
                first = int(self.outcome()["plan"].split(",")[0])
                largest = max(sum(sizes[:first]), sum(sizes[first:]))
                self.assertEqual(largest < elements, method == "streaming-diloco")
                arrays = 2 if "diloco" in method else 1
                self.assertEqual(metrics["method_memory_bytes"], 4 * (arrays * elements + largest))

    def test_inner_state_is_counted_and_changes_what_is_trained(self):
        losses, sent, memory = {}, {}, {}
        for inner in ("keep", "reset", "average"):
            options = f'every = 4, inner_state = "{inner}"'
            more = with_options(options, THREADS + 'recipe = { optimizer = "adam", learning_rate = 0.01 }\n')
            trial = self.run_trial(method="local-sgd", steps=8, more=more)
            self.assertEqual((trial["status"], trial["checks"]), ("ok", {"anchors_equal": True, "loss_finite": True}))
            steps = self.rank_zero(trial)
            losses[inner] = steps["loss"].tolist()
            sent[inner] = trial["metrics"]["window_bytes"]["value"]
            memory[inner] = trial["metrics"]["method_memory_bytes"]["value"]
            self.assertEqual((steps["exchanges"] > 0).tolist(), 3 * [False, False, False, True])
            done = self.start("check")
            self.assertNotIn("local-sgd", done.stdout + done.stderr)
        elements = sum(tensor["numel"] for tensor in self.outcome()["layout"])
        self.assertEqual(sent, {"keep": 4 * elements, "reset": 4 * elements, "average": 12 * elements})
        self.assertEqual(memory, {"keep": 8 * elements, "reset": 8 * elements, "average": 16 * elements})
        for inner in ("reset", "average"):  # they part from the first window's end on
            self.assertEqual(losses[inner][:5], losses["keep"][:5])
            self.assertNotEqual(losses[inner][5:], losses["keep"][5:])
        self.assertNotEqual(losses["reset"], losses["average"])

    def test_inner_state_of_a_table_without_a_recipe_is_refused(self):
        shutil.copy(Path(__file__).resolve().parents[3] / "experiments/local-steps/decoder-1b.json", self.folder)
        self.file.write_text(
            'id = "t"\n[defaults]\nmode = "modelled"\ncluster = "two-sites"\nworkload = "table:decoder-1b.json"\n'
            'workers = 2\nmethod = "diloco"\nmethod_options = { every = 30, inner_state = "average" }\n')
        said = self.call("plan", self.file, code=2)
        self.assertRegex(said, "t.toml:8: inner_state = average with workload table:decoder-1b.*, which has no recipe")

    def test_a_bundle_holds_the_bytes_of_averaged_inner_states(self):
        more = with_options('every = 2, fragments = 2, stripes = 1, delay = 0, inner_state = "average"', THREADS)
        self.run_trial(method="streaming-diloco", steps=4, more=more)
        bundle = self.folder / "true.sparfuse"
        said = self.said("export", "t", "--out", bundle)
        self.assertNotIn("left out", said)
        self.call("verify", bundle)
        self.call("merge", bundle, results=self.folder / "merged")
        self.assertEqual(len(list((self.folder / "merged").rglob("trial.json"))), 1)

        def forged(change):
            trial = forgeries.Forged(forgery.unpacked(bundle))
            change(trial)
            for name in ("payload_bytes", "sent_bytes", "received_bytes"):
                measured = trial.steps[trial.steps["measured"]]
                trial.state(name, float(measured[name].mean()))
            trial.state("window_bytes", 2 * trial.metric("sent_bytes"))
            hashed = trial.trial["config_hash"]
            with mock.patch.object(forgeries, "config_hash", lambda config: hashed):
                members = trial.bundle()
            file = self.folder / "forged.sparfuse"
            for _ in range(2):  # the second time with the table of what is forged
                file.write_bytes(forgery.bundled(dict(members)))
                done = self.start("verify", file, "--json")
                if not done.stdout.startswith("{"):
                    break
                members["table.json"] = forgery.written(json.loads(done.stdout)["table"])
            return done.returncode, done.stdout + done.stderr

        code, said = forged(lambda trial: None)
        self.assertEqual(code, 0, said)

        def as_if_kept(trial):  # one array of sgd's momentum beside the differences
            for name in ("payload_bytes", "sent_bytes", "received_bytes"):
                trial.steps[name] //= 2
            inner = np.char.startswith(trial.spans["label"], "inner state")
            self.assertGreater(inner.sum(), 0)
            trial.spans["bytes"][inner] = 0

        code, said = forged(as_if_kept)
        self.assertNotEqual(code, 0)
        self.assertIn("arrays of their inner state", said)

    def test_no_loop_between_steps_hides_what_goes_on_beside_them(self):
        # (method, its options, reference loops): one before the first of 8 steps, one after each step beside which
        # nothing goes on, and one behind the last step if there was none.
        for method, options, loops in (("local-sgd", "every = 4", 1 + 8), ("shadowsync", BESIDE, 1 + 2),
                                       ("delayed-gradients", "", 1 + 1)):
            with self.subTest(method):
                trial = self.run_trial(method=method, steps=8, more=with_options(options, THREADS))
                self.assertEqual(trial["status"], "ok", trial)
                self.assertEqual(len(trial["quiet"]["loop_seconds"]), loops)

    def test_delayed_gradients_come_in_the_next_step_and_leave_replicas_equal(self):
        trial = self.run_trial(method="delayed-gradients", steps=6, more=THREADS)
        self.assertEqual((trial["status"], trial["checks"]), ("ok", {"replicas_equal": True, "loss_finite": True}))
        steps = self.rank_zero(trial)
        self.assertEqual(steps["exchanges"].tolist(), [0] + [1] * (len(steps) - 1))
        elements = sum(tensor["numel"] for tensor in self.outcome()["layout"])
        self.assertEqual(set(steps["sent_bytes"][1:].tolist()), {4 * elements})

    def test_the_metrics_of_a_trial_are_what_its_series_gives(self):
        for transport in ("mpi", "threads"):
            more = with_options("every = 3", f'transport = "{transport}"\n')
            trial = self.run_trial(method="diloco", steps=6, more=more)
            steps = self.series(trial, "steps.npy")
            windows = steps["step_seconds"].reshape(2, 3, 3).sum(axis=2)[:, 1:]  # without the warm-up
            self.assertAlmostEqual(trial["metrics"]["window_seconds"]["value"], float(np.median(windows.max(axis=0))))
            done = self.start("check")
            self.assertNotIn("diloco", done.stdout + done.stderr)

    def test_windows_of_one_step_train_as_dense_does(self):
        losses = {}
        for method, more in (("dense", THREADS), ("local-sgd", with_options("every = 1", THREADS))):
            trial = self.run_trial(method=method, steps=6, more=more)
            losses[method] = self.rank_zero(trial)["loss"]
        np.testing.assert_allclose(losses["dense"], losses["local-sgd"], rtol=1e-4)

    def test_convergence_evaluates_what_it_says(self):
        found = {}
        for evaluate in ("anchor", "average", "own"):
            more = with_options("every = 4, outer_rate = 1, outer_momentum = 0", THREADS)
            more += f'kind = "convergence"\nevaluate = "{evaluate}"\nevaluate_every = 4\ntarget = 1\n'
            trial = self.run_trial(method="diloco", steps=10, more=more)
            self.assertEqual((trial["status"], trial["config"]["evaluate"]), ("ok", evaluate))
            self.assertEqual(trial["metrics"]["unsynchronised_steps"]["value"], 0)
            found[evaluate] = self.series(trial, "evaluations.npy")
        steps = found["anchor"]["step"].tolist()
        self.assertEqual(steps, [4, 8, 12])
        # After a synchronisation, all three are the anchor.
        for evaluate in ("average", "own"):
            np.testing.assert_allclose(found[evaluate]["loss"], found["anchor"]["loss"], rtol=1e-5)

    def test_within_a_window_the_anchor_is_none_of_the_ranks_own(self):
        losses = {}
        for evaluate in ("anchor", "average", "own"):
            more = with_options("every = 8", THREADS)
            more += f'kind = "convergence"\nevaluate = "{evaluate}"\nevaluate_every = 3\ntarget = 1\n'
            trial = self.run_trial(method="diloco", steps=5, more=more)
            self.assertEqual(trial["metrics"]["unsynchronised_steps"]["value"], 2 + 5)
            losses[evaluate] = self.series(trial, "evaluations.npy")["loss"].tolist()
            trained = self.rank_zero(trial)["loss"].tolist()
            losses.setdefault("trained", trained)
            self.assertEqual(trained, losses["trained"])  # evaluating changes nothing
        self.assertEqual(len({tuple(losses[evaluate]) for evaluate in ("anchor", "average", "own")}), 3)
        # Until the first synchronisation, the anchor has the initial parameters.
        self.assertEqual(losses["anchor"][0], losses["anchor"][1])

    def test_turns_are_whole_windows(self):
        self.write(method="local-sgd", steps=4, more=THREADS)
        text = self.file.read_text().replace('method = "local-sgd"\n', "")
        axis = '[[axis]]\nmethod = ["dense", "local-sgd"]\nmethod_options = [{}, { every = 2 }]\n[repeat]'
        self.file.write_text(text.replace("[repeat]", axis))
        self.call("run", self.file)
        for path in self.results.rglob("trial.json"):
            trial = trial_test.read_trial(path)
            self.assertEqual((trial["status"], trial["launch"]["trials"]), ("ok", 2))
            steps = np.load(path.parent / "steps.npy")
            one = steps[steps["rank"] == 0]
            if trial["config"]["method"] == "local-sgd":
                self.assertEqual(one["round"].tolist(), [0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
                self.assertEqual(one["measured"].tolist(), [False] * 2 + 2 * [False, False, True, True])

    def test_a_rank_killed_beside_an_exchange_is_named(self):
        trial, output = self.disturb(1, signal.SIGKILL, warmup=4, method="shadowsync", more=with_options(BESIDE))
        self.assertEqual((trial["failure"]["rank"], trial["failure"]["signal"]), (1, 9), trial["failure"])
        self.assertIn("shadowsync", output)
        self.assertEqual(self.ranks(), {})


if __name__ == "__main__":
    trial_test.main()
