"""Tests how a user makes a declared cluster and models on it, as docs/profiles-and-clusters.md says.

  cluster_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import re
import shutil

from program import ROOT, ProgramTest, main

PAGE = ROOT / "docs/profiles-and-clusters.md"

TABLE = {
    "name": "mymodel", "unit": "images", "units_per_sample": 1, "batch_per_worker": 32,
    "family": "vgg", "source": "by hand",
    "tensors": [{"name": "b", "shape": [10], "macs": 0},
                {"name": "w", "shape": [10, 14400], "macs": 144000}]}

STEP = """
[[reference]]
workload = "bert-large-squad"
batch_per_worker = 4
workers = 128
method = "dense"
step_ms = {}
source = "made up"
"""


def all_reduce_log(nodes, ranks_per_node, start_us, gbps):
    """The output of all_reduce_perf on links with this start-up time and bus bandwidth."""
    ranks = nodes * ranks_per_node
    lines = ["# Collective test starting: all_reduce_perf", "# nThread 1 nGpus 1 minBytes 8",
             "# Using devices"]
    lines += [f"#  Rank {r:2} Group  0 Pid {r:6} on     node-{r // ranks_per_node} device "
              f"{r % ranks_per_node:2} [0000:00:00] card" for r in range(ranks)]
    lines += ["# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
              "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)"]
    factor = 2 * (ranks - 1) / ranks
    for size in (8, 65536, 2**20, 2**27, 2**30):
        time = round(start_us + factor * size * 8e-3 / gbps, 2)
        rate = size / time / 1e3
        times = f"{time:.2f} {rate:.2f} {factor * rate:.2f} 0"
        lines.append(f"{size} {size // 4} float sum -1 {times} {times}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 1", ""])


class ClusterTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.profiles = self.results / "profiles"
        self.experiment = self.folder / "mine.toml"
        self.experiment.write_text(re.search(r"```toml\n(# mine\.toml.*?)```", PAGE.read_text(),
                                             re.DOTALL)[1])

    def make(self, *more):
        said = self.call("cluster", "new", "mine", "--preset", "h100-nvlink-ib", "--nodes", "16",
                         *more)
        self.assertIn("16 nodes of 8, 128 devices, none of it measured", said)
        return self.profiles / "mine.toml"

    def change(self, file, old, new):
        text = file.read_text()
        self.assertIn(old, text)
        file.write_text(text.replace(old, new, 1))

    def bands(self):
        """{method: (ratio to dense, its lowest value, its highest value)}."""
        rows = [line.split("|") for line in self.call("table", self.experiment).splitlines()]
        found = {}
        for row in rows:
            band = re.search(r"([\d.]+)x \[([\d.]+), ([\d.]+)\]", "|".join(row))
            if band:
                found[row[1].strip()] = tuple(map(float, band.groups()))
        return found

    def test_a_preset_is_modelled_at_once_with_bands(self):
        self.make()
        self.call("run", self.experiment)
        bands = self.bands()
        self.assertEqual(sorted(bands), ["safusion", "wfbp"])
        for ratio, least, most in bands.values():
            self.assertLessEqual(least, ratio)
            self.assertLess(ratio, most)

    def test_a_model_table_is_modelled_there_and_a_range_that_is_known_narrows_the_band(self):
        file = self.make()
        (self.folder / "mymodel.json").write_text(json.dumps(TABLE))
        self.change(self.experiment, "bert-large-squad", "table:mymodel.json")
        self.call("run", self.experiment)
        wide = self.bands()["safusion"]
        text = file.read_text()
        file.write_text(re.sub(r"value = ([\d.e-]+), low = [\d.e-]+, high = [\d.e-]+",
                               r"value = \1, low = \1, high = \1", text))
        self.call("run", self.experiment)
        narrow = self.bands()["safusion"]
        self.assertEqual(narrow[0], wide[0])
        self.assertLess(narrow[2] - narrow[1], wide[2] - wide[1])

    def test_lists_what_there_is_with_its_kind(self):
        self.make()
        text = self.call("cluster", "list")
        for line in ("h100-nvlink-ib", "horovod-nccl", "mine                declared: ",
                     "this-machine        this machine: ", "safusion-local      declared: "):
            self.assertIn(line, text)
        self.assertRegex(text, "epyc-2core          measured (here|elsewhere): ")
        listed = json.loads(self.call("cluster", "list", "--json"))
        self.assertEqual(sorted(listed), ["clusters", "presets", "stacks"])

    def measured(self, name="x"):
        """The path of a copy of the project's profile."""
        self.profiles.mkdir(parents=True, exist_ok=True)
        file = self.profiles / f"{name}.json"
        shutil.copy(ROOT / "results/profiles/epyc-2core.json", file)
        return file

    def kind_of(self, name):
        found = json.loads(self.call("cluster", "list", "--json"))["clusters"]
        return next(each for each in found if each["name"] == name)["kind"]

    def on_profile(self, cluster, more=""):
        self.experiment.write_text(
            f"""id = "mine"
[defaults]
mode = "modelled"
cluster = "{cluster}"
workload = "digits-resnet"
workers = 8
{more}
[[axis]]
method = ["dense", "wfbp"]
""")

    def test_a_profile_changed_by_hand_is_not_measured(self):
        file = self.measured()
        self.assertRegex(self.kind_of("x"), "measured (here|elsewhere)")
        self.on_profile("x")
        self.call("run", self.experiment)
        self.assertIn("profile x (measured)", self.call("table", self.experiment))
        outcomes = json.loads(file.read_text())
        outcomes[0]["profile"]["backward"]["forward_seconds"] /= 2
        file.write_text(json.dumps(outcomes))
        self.assertEqual(self.kind_of("x"), "refused")
        said = self.call("run", self.experiment, code=1)
        self.assertIn("x.json: the outcome of \"digits-resnet\" with batch 32, 1 rank(s) was changed "
                      "after it was measured", said)
        for outcome in outcomes:
            del outcome["digest"]
        file.write_text(json.dumps(outcomes))
        self.assertEqual(self.kind_of("x"), "declared (by hand)")
        self.call("run", self.experiment)
        self.assertIn("profile x (declared (by hand))", self.call("table", self.experiment))

    def test_a_measured_card_in_a_declared_cluster(self):
        file = self.make()
        file.write_text('card = "epyc-2core"\n' + file.read_text())
        self.assertEqual(self.kind_of("mine"), "declared, its card epyc-2core measured")
        self.assertRegex(self.call("calibrate", "mine"), r"digits-resnet +\| +32 +\| +itself")
        self.on_profile("mine")
        self.call("run", self.experiment)
        self.assertIn("profile mine (declared, its card epyc-2core measured)",
                      self.call("table", self.experiment))
        self.assertEqual(list(self.bands()), ["wfbp"])
        self.on_profile("mine", "batch_per_worker = 16")
        self.assertIn("`sparfuse profile digits-resnet --batch 16 --threads 1 --name epyc-2core "
                      "--ranks 1`", self.call("plan", self.experiment, code=2))

    def test_imports_what_nccl_tests_measured(self):
        file = self.make()
        before = file.read_text()
        log = self.folder / "reduce.log"
        log.write_text(all_reduce_log(nodes=2, ranks_per_node=8, start_us=40, gbps=2900))
        said = self.call("cluster", "import", "mine", "--from", "nccl-tests", log)
        self.assertIn("wrote the all-reduces of 16 ranks into", said)
        self.assertIn("3200: inter_node_gbps of 8 network_cards", said)
        line = re.search(r"^inter_node_efficiency .*value = 0\.8998, .*reduce\.log, sha256 .*$", said,
                         re.MULTILINE)[0]
        after = file.read_text()
        self.assertTrue(after.startswith(before))
        self.call("cluster", "import", "mine", "--from", "nccl-tests", log)
        self.assertEqual(file.read_text(), after)
        self.assertEqual(self.kind_of("mine"), "declared, in part imported")
        file.write_text(re.sub(r"^inter_node_efficiency .*$", lambda _: line, after,
                               flags=re.MULTILINE))
        self.assertIn("all-reduce of 16 ranks", self.call("calibrate", "mine"))
        self.call("run", self.experiment)
        self.assertIn("profile mine (declared, in part imported)",
                      self.call("table", self.experiment))
        # `import` does the same.
        after = file.read_text()
        self.call("import", "nccl-tests", "mine", log)
        self.assertEqual(file.read_text(), after)
        self.assertEqual(self.call("import", "nccl-tests", "mine", log, "--print"),
                         self.call("cluster", "import", "mine", "--from", "nccl-tests", log, "--print"))
        # A wrong log changes nothing.
        text = log.read_text()
        for old, new, expected in (
                ("# Out of bounds values : 0 OK\n", "", "was cut off"),
                ("(us)", "(ms)", "time is in (ms): expected (us)"),
                ("node-1 ", "node-0 ", "nodes have equal names: expected --nodes N, of more than 1")):
            log.write_text(text.replace(old, new))
            said = self.call("cluster", "import", "mine", "--from", "nccl-tests", log, code=2)
            self.assertRegex(said, r"reduce\.log(:\d+)?: ")
            self.assertIn(expected, said)
        self.assertEqual(file.read_text(), after)

    def test_imports_what_osu_measured_without_writing(self):
        file = self.make()
        before = file.read_text()
        log = self.folder / "latency.txt"
        log.write_text("# OSU MPI Latency Test v7.5\n# Datatype: MPI_CHAR.\n"
                       "# Size       Avg Latency(us)\n1    3.30\n8    3.40\n")
        call = ("cluster", "import", "mine", "--from", "osu", log)
        self.assertEqual(self.call("import", "osu", "mine", log, "--nodes", "2"), self.call(*call, "--nodes", "2"))
        self.assertIn("expected --nodes N", self.call(*call, code=2))
        self.assertRegex(self.call(*call, "--nodes", "2"), "inter_node_us .*value = 3\\.4, ")
        self.assertEqual(file.read_text(), before)

    def test_a_trace_stands_for_the_model_and_the_software(self):
        self.make()
        trace = ROOT / "tests/harness/traces/cases/hand-gpu-ddp.json"
        asked = ["advise", "--trace", trace, "--batch", "8", "--cluster", "mine", "--workers", "16",
                 "--methods", "dense,wfbp"]  # fmt: skip
        said = self.call(*asked)
        line = re.search(r"dense step of 2 ranks: ([\d.]+) ms modelled, 1.000 ms traced: (\S+) %", said)
        found = json.loads(self.call(*asked, "--json"))
        traced = found["trace"]
        self.assertEqual((traced["workers"], traced["step_seconds"]), (2, 1e-3))
        self.assertEqual(traced["step_is"], "traced")
        self.assertAlmostEqual(1e3 * traced["modelled_step_seconds"], float(line[1]), places=3)
        self.assertAlmostEqual(100 * traced["off"], float(line[2]), places=1)
        inputs = {each["name"]: each["value"] for each in traced["inputs"]}
        self.assertEqual(inputs["exchange_host_us"], 12)
        self.assertNotIn("exchange_host_us", [each["name"] for each in traced["as_declared"]])
        for method in found["rankings"][0]["methods"]:
            self.assertLessEqual(method["formulas"]["longest_seconds"], method["formulas"]["sum_seconds"])
        said = self.call("import", "kineto", "mine", trace, "--batch", "8", "--step-ms", "0.9")
        self.assertIn("0.900 ms measured", said)
        self.assertIn("declared, measured: trace", self.call("cluster", "list"))

    def test_traced_steps_of_a_run_are_written_for_tools_of_torch_profiler(self):
        self.make()
        self.on_profile("mine")
        said = self.call("run", self.experiment, "--trace-format", "kineto")
        self.assertIn("2 traced steps written", said)
        for method in ("dense", "wfbp"):
            folder, = self.results.glob(f"trials/mine/main/{method}-*/kineto")
            self.assertEqual(len(list(folder.iterdir())), 4)  # the ranks whose spans a model keeps
        dense, = self.results.glob("trials/mine/main/dense-*/kineto/trace-rank3.json")
        facts = json.loads(self.call("trace", dense, "--json"))
        self.assertEqual((facts["rank"], facts["world"], len(facts["tensors"])), (3, 8, 43))
        self.assertIn("0 traced steps written", self.call("run", self.experiment, "--trace-format", "kineto"))
        self.assertIn("{chrome,kineto}", self.call("run", self.experiment, "--trace-format", "x", code=2))

    def test_ones_own_published_numbers_calibrate_and_are_compared(self):
        """A step that calibrates is no prediction, though the reference does not name the number."""
        file = self.make()
        published = self.results / "published"
        published.mkdir()
        (published / "mine.csv").write_text(
            "paper,artifact,workload,model,dataset,workers,network,method,sparsifier,density,metric,value,"
            "unit,source,confidence\n" + "".join(
                f"Ours (27),T1,w,BERT,d,{workers},IB,DDP,none,1.0,throughput,{rate},tokens/s,me,read\n"
                for workers, rate in ((8, 250000), (16, 450000), (128, 3000000))))
        with file.open("a") as out:
            out.write(STEP.format(140).replace('"dense"', '"ddp"'))
        self.change(file, 'stack          = "pytorch-nccl"',
                    'stack          = "pytorch-nccl"\ncalibrate = ["exchange_host_us"]')
        self.experiment.write_text("""id = "mine"
[published]
paper = "Ours (27)"
methods = { ddp = "DDP" }
[defaults]
mode = "modelled"
cluster = "mine"
workload = "bert-large-squad"
batch_per_worker = 4
method = "ddp"
[[axis]]
workers = [8, 16, 128]
[[figure]]
kind = "agreement"
published = { artifacts = { bert-large-squad = "T1" } }
""")
        self.call("run", self.experiment)
        said = self.call("skill", self.experiment)
        self.assertRegex(said, r"\| predicted: the model +\| 2 ")
        self.assertRegex(said, r"\| calibrated with: the model +\| 1 ")

    def test_mistakes_say_what_was_expected_and_write_nothing(self):
        new = ("cluster", "new")
        for arguments, said in (
                (("mine", "--preset", "h100-nvlink-b"), 'did you mean "h100-nvlink-ib"?'),
                (("a b", "--preset", "h100-nvlink-ib"), "expected letters, digits"),
                (("../mine", "--preset", "h100-nvlink-ib"), "expected letters, digits"),
                (("safusion-local", "--preset", "h100-nvlink-ib"), "nothing is overwritten"),
                (("mine", "--preset", "h100-nvlink-ib", "--nodes", "0"), "range 1 to 65536"),
                (("mine", "--preset", "h100-nvlink-ib", "--ranks-per-node", "9"), "from 1 to 8")):
            self.assertIn(said, self.call(*new, *arguments, code=2))
        self.assertFalse(self.profiles.exists())
        file = self.make()
        before = file.read_text()
        self.assertIn("nothing is overwritten",
                      self.call(*new, "mine", "--preset", "v100-10gbe", code=2))
        self.assertEqual(file.read_text(), before)
        self.change(self.experiment, "workers        = 128", "workers        = 136")
        self.assertIn("cluster mine has 128 devices", self.call("plan", self.experiment, code=2))
        self.change(file, '"pytorch-nccl"', '"pytorch-ncll"')
        self.assertRegex(self.call("calibrate", "mine", code=2),
                         r'mine\.toml:\d+: unknown stack "pytorch-ncll"; did you mean "pytorch-nccl"')

    def test_calibrate_marks_steps_that_contradict_one_another_or_the_network(self):
        file = self.make()
        self.change(file, "title ", 'calibrate = ["exchange_host_us"]\ntitle ')
        with file.open("a") as out:
            out.write(STEP.format(25) + STEP.format(90))
        text = self.call("calibrate", "mine")
        self.assertRegex(text, r"\| \+[\d.]+ % \*\* \|")
        self.assertRegex(text, r"\| -[\d.]+ % \*\* \|")
        self.assertIn("2 of 2 references, marked **, are more than 10 % off", text)
        self.change(file, "inter_node_gbps          = { value = 400, low = 400, high = 400",
                    "inter_node_gbps          = { value = 1, low = 1, high = 1")
        warnings = json.loads(self.call("calibrate", "mine", "--json"))["warnings"]
        self.assertTrue(any("the nominal rate is 8 " in each for each in warnings), warnings)


if __name__ == "__main__":
    main()
