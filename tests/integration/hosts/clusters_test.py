"""Tests what somebody does who has several clusters: one experiment on a Slurm of two nodes that share no
folder, and on two pairs of hosts whose links are unlike; results merged, compared, verified, shown.

  clusters_test.py PATH/TO/sparfuse [unittest arguments]

Needs root, and for Slurm what tests/integration/hosts/slurm_nodes.py fetches; what cannot be had is named.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import named
import namespaces
import small_experiment

SPARFUSE = None
ROOT = Path(__file__).resolve().parents[3]
SLURM = Path(__file__).with_name("slurm_nodes.py").resolve()
UNAVAILABLE = 77
SLOW = 100  # Mbit/s of the slow network's link
RATES = {"fast": None, "slow": SLOW}
WHOLE, HALF = 200, 100  # Mbit/s of two links
WHY_NOT = namespaces.why_not()
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class ClustersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="sparfuse-clusters-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.file = cls.folder / "clusters.toml"
        cls.file.write_text(small_experiment.text("clusters", methods=("dense", "wfbp"), blocks=3))
        cls.bundles = {}
        cls.missing = ""
        for name, rate in RATES.items():
            hosts = namespaces.Hosts(f"sfc{os.getpid() % 100000}{name[0]}", cls.folder, [rate])
            try:
                cls.run_there(name, hosts.command, hosts.environment(), "--hostfile", hosts.hostfile, "--interface",
                              "net0", "--fingerprint")
            finally:
                hosts.remove()
        # Nodes see neither the program nor its libraries nor its results.
        hidden = [word for folder in (ROOT, Path(SPARFUSE).parent) for word in ("--hide", folder)]
        cls.run_there("slurm", lambda *words: [sys.executable, SLURM, *hidden, "salloc", "--quiet", "-N2",
                                               "--ntasks-per-node=1", *words], {}, "--launch", "srun", "--ship")

    @classmethod
    def run_there(cls, name, started, environment, *options):
        run = [SPARFUSE, "--results", cls.folder / name, "run", cls.file, "--keep-disturbed", *options]
        done = subprocess.run([str(word) for word in started(*map(str, run))], text=True, capture_output=True,
                              env={"SPARFUSE_DATA": str(ROOT / "results" / "data"), **os.environ, **environment},
                              timeout=300, check=False)
        if done.returncode == UNAVAILABLE:
            cls.missing = done.stderr.strip()
            return
        if "6 ran well, 0 failed" not in done.stdout:
            raise AssertionError(done.stdout + done.stderr)
        cls.bundles[name] = cls.folder / f"{name}.sparfuse"
        cls.call("export", "clusters", "--out", cls.bundles[name], results=name)

    @classmethod
    def call(cls, *arguments, results="merged", code=0):
        done = subprocess.run([SPARFUSE, "--results", str(cls.folder / results), *map(str, arguments)], text=True,
                              capture_output=True, timeout=100, check=False)
        if done.returncode != code:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout + done.stderr

    def merge(self):
        """Merges the bundles into one store; returns the systems that it lists, without this machine's own."""
        self.call("merge", *self.bundles.values())
        said = self.call("compare", code=2)
        return re.findall(r"(?m)^  ([0-9a-f]{12}@[0-9a-f]{8})  .*several hosts, of another results folder$", said)

    def test_like_nodes_on_unlike_networks_are_not_one_system(self):
        systems = self.merge()
        self.assertEqual(len(systems), len(self.bundles))
        compared = json.loads(self.call("compare", *systems, "--keep-disturbed", "--json"))
        self.assertEqual(len(compared["cells"]), len(systems) - 1)
        of_bundles = json.loads(self.call("compare", *self.bundles.values(), "--keep-disturbed", "--json"))
        ratios = {json.dumps(cell[f"{side}_ratio"]) for cell in of_bundles["cells"] for side in ("first", "second")}
        self.assertEqual({json.dumps(cell[f"{side}_ratio"]) for cell in compared["cells"]
                          for side in ("first", "second")}, ratios)
        pair = self.call("compare", self.bundles["fast"], self.bundles["slow"], "--keep-disturbed")
        self.assertIn("1 not comparable (1: other regime: the reference exposes communication of", pair)
        # The table of a bundle of all systems keeps them apart, too.
        together = self.folder / "together.sparfuse"
        self.call("export", "clusters", "--out", together)
        table = json.loads(self.call("verify", together, "--json"))["table"]
        self.assertEqual({row["system"] for row in table}, set(systems))
        # A table shows one system.
        self.assertIn(f"trials left out: {6 * (len(systems) - 1)} of other machines",
                      self.call("table", self.file, "--keep-disturbed"))

    def test_the_slower_link_is_named_before_any_ratio(self):
        self.check_named_first(self.bundles["fast"], self.bundles["slow"], r"0\.\d+ times that of fast's")

    def test_so_is_a_link_at_half_its_rate(self):
        file = self.folder / "clusters.toml"
        bundles = []
        for name, rate in (("whole", WHOLE), ("half", HALF)):
            hosts = namespaces.Hosts(f"sfc{os.getpid() % 100000}{name[0]}", self.folder, [rate])
            self.addCleanup(hosts.remove)
            run = [SPARFUSE, "--results", self.folder / name, "run", file, "--block", "0", "--keep-disturbed",
                   "--hostfile", hosts.hostfile, "--fingerprint"]
            done = subprocess.run(hosts.command(*run), text=True, capture_output=True, timeout=300, check=False,
                                  env={"SPARFUSE_DATA": str(ROOT / "results" / "data"), **os.environ,
                                       **hosts.environment()})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            bundles.append(self.folder / f"{name}.sparfuse")
            self.call("export", "clusters", "--out", bundles[-1], results=name)
        self.check_named_first(*bundles, r"(half of|0\.[3-7]\d* times that of) whole's")

    def check_named_first(self, first, second, words):
        said = self.call("compare", first, second, "--keep-disturbed")
        named = re.search(rf"(?m)^{second.stem}'s bandwidth between nodes is {words} \(", said)
        self.assertTrue(named, said)
        self.assertLess(named.start(), said.index("Compared systems"))
        self.assertIn("fingerprint: bandwidth between nodes", said[said.index("Differences between the systems"):])

    def test_trials_record_the_nodes_that_they_ran_on(self):
        for name in self.bundles:  # setUpClass has made them
            for path in (self.folder / name).rglob("trial.json"):
                trial = json.loads(path.read_text())
                node, = trial["launch"]["nodes"]  # both nodes are this machine
                self.assertEqual(node.pop("count"), 2)
                self.assertEqual(trial["system"], {"nodes": [node]})
                self.assertEqual(sorted(node), ["cores", "cpu_model", "gpus", "memory_gib", "network"])

    def test_results_of_a_cluster_without_a_shared_folder_are_like_others(self):
        if "slurm" not in self.bundles:
            self.skipTest(self.missing)
        trials = [named.read_trial(path) for path in (self.folder / "slurm").rglob("trial.json")]
        self.assertEqual({trial["status"] for trial in trials}, {"ok"})
        for trial in trials:
            self.assertEqual(trial["launch"]["binding"]["hosts"], ["n1", "n2"])
            self.assertTrue(trial["checks"]["replicas_equal"])
            self.assertIn("steps.npy", trial["files"])

    def test_a_bundle_that_was_edited_is_found_out_and_the_rest_is_taken(self):
        whole = self.bundles["fast"].read_bytes()
        self.assertIn("all hashes agree", self.call("verify", self.bundles["fast"]))
        at = re.search(rb'"step_seconds": \{\s*"unit": "seconds",\s*"value": 0\.0*', whole).end()
        edited = self.folder / "edited.sparfuse"
        edited.write_bytes(whole[:at] + (b"1" if whole[at:at + 1] != b"1" else b"2") + whole[at + 1:])
        said = self.call("verify", edited, code=1)
        self.assertRegex(said, r"outcome\.json: SHA-256 .*edited or damaged")
        said = self.call("merge", edited, results="of-the-edited", code=1)
        self.assertIn("5 trial(s) added, 0 already here, 0 annotation(s) added, 1 refused", said)

    def test_the_site_has_a_page_for_each_and_a_browser_shows_it(self):
        systems = self.merge()
        self.call("site", "--out", self.folder / "site", "--keep-disturbed")
        data = json.loads((self.folder / "site" / "data.json").read_text())
        self.assertEqual(sorted(system["key"] for system in data["systems"]), sorted(systems))
        self.assertEqual({system["hosts"] for system in data["systems"]}, {2})
        self.assertEqual(len(data["pairs"]), len(systems) * (len(systems) - 1) // 2)
        if not BROWSER:
            self.skipTest("no chromium on this machine")
        for page in ("index.html", *(f"systems/{path.name}" for path in (self.folder / "site/systems").iterdir())):
            shown = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                                    (self.folder / "site" / page).as_uri()], text=True, capture_output=True,
                                   timeout=100, check=True, env={**os.environ, "HOME": str(self.folder)}).stdout
            self.assertIn("wfbp", shown)
            self.assertIn(systems[0].split("@")[0], shown)


if __name__ == "__main__":
    SPARFUSE = str(Path(sys.argv.pop(1)).resolve())
    if WHY_NOT:
        print(f"skipped: {WHY_NOT}", file=sys.stderr)
        sys.exit(77)
    unittest.main()
