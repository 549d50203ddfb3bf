"""Tests bundles of real trials: none of ours is refused, and no key of one can be another unnoticed.

  real_bundle_test.py PATH/TO/sparfuse [unittest arguments]
"""

import fnmatch
import json
import sys
from pathlib import Path

for folder in (".", "../bench/store", "../chaos"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))
import forgery  # noqa: E402  (found by the path above)
import trial_test  # noqa: E402  (found by the path above)

# Trials of kinds whose records differ in their keys, or in the keys' values.
SETTINGS = """
id = "t"
[defaults]
mode = "measured"
workload = "digits-resnet"
transport = "threads"
workers = 2
batch_per_worker = 2
steps = 4
[[part]]
id = "counts"
[part.defaults]
method = "wfbp"
density = 0.001
[[part.axis]]
sparsifier = ["topk", "chunked-topk", "block-topk", "adtopk", "gaussiank", "randomk"]
[[part]]
id = "emulated"
[part.defaults]
mode = "emulated"
workers = 4
ranks_per_node = 2
link = { gbps = 1, alpha_us = 100, intra_node_gbps = 10, intra_node_us = 100 }
[[part.axis]]
method = ["dense", "ssfusion", "powersgd", "hitopkcomm", "gtopk"]
[[part]]
id = "windows"
[part.defaults]
method = "streaming-diloco"
steps = 8
method_options = { every = 4, fragments = 2, stripes = 1, delay = 1 }
[[part.axis]]
batch_per_worker = [2, 3]
[[part]]
id = "evaluated-windows"
[part.defaults]
kind = "convergence"
method = "local-sgd"
steps = 8
evaluate_every = 4
method_options = { every = 4 }
[[part.axis]]
evaluate = ["anchor", "own"]
[[part]]
id = "processes"
[part.defaults]
method = "safusion-inter"
accumulation = 2
dense_tensors = { max_ndim = 1 }
[[part.axis]]
transport = ["tcp", "mpi"]
[[part]]
id = "target"
[part.defaults]
kind = "convergence"
method = "dense"
steps = 20
evaluate_every = 2
target = 0.05
[[part.axis]]
workers = [1, 2]
"""


class RealBundleTest(trial_test.Trials):
    def export(self):
        bundle = self.folder / "t.sparfuse"
        said = self.said("export", "t", "--out", bundle)
        self.assertNotIn("left out", said)
        return bundle

    def test_no_trial_of_ours_is_refused(self):
        self.file.write_text(SETTINGS)
        self.call("run", self.file)
        trials = [json.loads(file.read_text()) for file in self.results.rglob("trial.json")]
        self.assertEqual({trial["status"] for trial in trials}, {"ok"})
        bundle = self.export()
        self.assertIn(f"the metrics of {len(trials)} follow from their steps", self.said("verify", bundle))
        other = self.folder / "other"
        self.assertIn(f"{len(trials)} trial(s) added, 0 already here, 0 annotation(s) added, 0 refused",
                      self.said("merge", bundle, results=other))
        self.assertNotIn("do not follow from", self.said("status", self.file, results=other))

    def verify(self, members, code=None):
        file = self.folder / "forged.sparfuse"
        file.write_bytes(forgery.bundled(dict(members)))
        done = self.start("verify", file, "--json")
        self.assertIn(done.returncode, (0, 1) if code is None else (code,), done.stdout + done.stderr)
        self.assertNotIn("json.exception", done.stderr)
        return json.loads(done.stdout) if done.stdout.startswith("{") else None

    def test_no_key_of_a_trial_is_another_unnoticed(self):
        """Changes each key in a bundle whose hashes and table agree with the change."""
        self.run_trial(mode="emulated", method="wfbp", more='kind = "throughput"\ntransport = "threads"\n'
                       "link = { gbps = 10, alpha_us = 100 }\n")
        members = forgery.unpacked(self.export())
        good = self.verify(members, code=0)
        told = good["nothing_tells"]
        for note in good["not_checked"]:
            names = [] if ".npy: " in note else note.split(" of ")[0].split(", ")
            told += [*names, *(f"metrics.{name}" for name in names)]
        unnoticed, refused = [], 0
        for path, forged in forgery.every_key(members):
            said = self.verify(forged)
            if said is not None and said["table"] != json.loads(forged["table.json"]):
                forged["table.json"] = forgery.written(said["table"])
                said = self.verify(forged)
            name = ".".join(map(str, path))
            if said is None or said["problems"]:
                refused += 1
            elif not any(fnmatch.fnmatch(name, key) or fnmatch.fnmatch(name, f"{key}.*") for key in told):
                unnoticed.append(name)
        self.assertEqual(unnoticed, [])
        self.assertGreater(refused, 150)


if __name__ == "__main__":
    trial_test.main()
