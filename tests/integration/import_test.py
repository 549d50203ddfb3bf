"""Tests how results of others come in, as a user would: tables, logs of three well-known forms, and
what verbs say of them.

  import_test.py PATH/TO/sparfuse [unittest arguments]
"""

import csv
import json
import subprocess
import unittest
from pathlib import Path

import harness_test
import program

ROOT = Path(__file__).resolve().parents[2]
MAPS = ROOT / "scripts/imports"

TABLE = """Model,Method,GPUs,Rate,rho
ResNet (digits),DDP,1,500.0 +- 5,
ResNet (digits),DDP,2,900,
ResNet (digits),WFBP,2,1000,1
"""
MAP = """source = "Doe et al., Table 2, https://example.org/papers/42"
system = "doe-lab"
per = "system"
metric = "throughput"
unit = "images/s"
batch_per_worker = 32
[columns]
workload = "Model"
method = "Method"
workers = "GPUs"
value = "Rate"
[workloads]
"ResNet (digits)" = "digits-resnet"
[methods]
DDP = "dense"
WFBP = "wfbp"
"""

HOROVOD = """Model: resnet50
Batch size: 32
Number of GPUs: 8
Running warmup...
Running benchmark...
Iter #0: 195.0 img/sec per GPU
Iter #1: 196.0 img/sec per GPU
Iter #2: 197.0 img/sec per GPU
Img/sec per GPU: 196.0 +-1.6
Total img/sec on 8 GPU(s): 1568.0 +-12.8
"""

PYTORCH = """=> creating model 'resnet50'
Epoch: [0][  1/100]\tTime  9.000 ( 9.000)\tData  8.000 ( 8.000)\tLoss 7.0e+00 (7.0e+00)\tAcc@1   0.00 (  0.00)
Epoch: [0][ 51/100]\tTime  0.250 ( 0.900)\tData  0.000 ( 0.200)\tLoss 6.5e+00 (6.9e+00)\tAcc@1   0.78 (  0.10)
Epoch: [0][ 91/100]\tTime  0.260 ( 0.700)\tData  0.000 ( 0.100)\tLoss 6.0e+00 (6.8e+00)\tAcc@1   1.56 (  0.30)
Test: [  1/196]\tTime  3.000 ( 3.000)\tLoss 5.0e+00 (5.0e+00)\tAcc@1   9.00 (  9.00)
 *   Acc@1 10.500 Acc@5 25.000
Epoch: [1][ 91/100]\tTime  0.240 ( 0.300)\tData  0.000 ( 0.100)\tLoss 5.0e+00 (5.5e+00)\tAcc@1  12.50 ( 11.30)
 *   Acc@1 21.000 Acc@5 45.000
"""

# A log of wandb as pandas writes it: lines of other calls lack the columns.
GRACE = """,lr,epoch,eval/top-1,loss,local_throughput,iterations
0,0.1,0.0,,,,
1,,,10.0,2.3,512.0,0.0
2,,,20.0,2.0,1000.0,50.0
3,,,25.0,1.9,1024.0,100.0
4,,,30.0,1.8,1048.0,150.0
"""

MLLOG = """some other output
:::MLLOG {"namespace": "", "time_ms": 1000000, "event_type": "INTERVAL_START", "key": "run_start", "value": null, "metadata": {"file": "main.py", "lineno": 10}}
:::MLLOG {"namespace": "", "time_ms": 1600000, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", "value": 0.55, "metadata": {"file": "main.py", "lineno": 20, "epoch_num": 4}}
:::MLLOG {"namespace": "", "time_ms": 2200000, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", "value": 0.7595, "metadata": {"file": "main.py", "lineno": 20, "epoch_num": 8}}
:::MLLOG {"namespace": "", "time_ms": 2200100, "event_type": "INTERVAL_END", "key": "run_stop", "value": null, "metadata": {"status": "success"}}
"""


class ImportTest(harness_test.FakeTrials):
    def put(self, name, text):
        file = self.folder / name
        file.write_text(text)
        return file

    def import_table(self, *more, text=TABLE, code=0):
        return self.call("import", "table", self.put("doe.csv", text), "--map", self.put("doe.toml", MAP),
                         *more, code=code)

    def import_log(self, name, text, map_file, *settings, code=0):
        options = [word for setting in settings for word in ("--set", setting)]
        return self.call("import", "log", self.put(name, text), "--map", MAPS / map_file, "--set", "system=lab",
                         "--set", "source=our own run", *options, code=code)

    def imported(self):
        return [trial for trial in self.trials() if trial["config"]["mode"] == "imported"]

    def test_a_table_stands_beside_ours_and_changes_no_number(self):
        self.write(blocks=2, **{"[1, 2, 3]": "[2]", '"dense", "wfbp", "syncea"': '"dense", "wfbp"'})
        self.call("run", self.file)
        before = json.loads(self.call("table", self.file, "--json"))
        plan = self.call("plan", self.file)
        systems = self.call("compare", code=2)

        self.assertIn("3 result(s) would be imported", self.import_table("--dry-run"))
        self.assertEqual(self.imported(), [])
        self.assertIn("3 result(s) imported, 0 already here", self.import_table())
        self.assertIn("0 result(s) imported, 3 already here", self.import_table())
        self.assertEqual(len(self.imported()), 3)

        # Our rows stay unchanged, and nothing is compared with imported ones.
        after = json.loads(self.call("table", self.file, "--json"))
        self.assertEqual([row for row in after if row["what"] != "imported"], before)
        theirs = [row for row in after if row["what"] == "imported" and row["metric"] == "throughput"]
        self.assertEqual([(row["method"], row["workers"], row["value"], row["mode"]) for row in theirs],
                         [("dense", 1, 500, "imported"), ("dense", 2, 900, "imported"),
                          ("wfbp", 2, 1000, "imported")])
        self.assertIn("doe-lab (Doe et al.", theirs[0]["hardware"])
        self.assertEqual(self.call("plan", self.file), plan)
        self.assertEqual(self.call("compare", code=2), systems)
        rows = [*csv.DictReader(self.call("table", self.file, "--format", "csv").splitlines())]
        self.assertEqual(sum(row["what"] == "imported" for row in rows), 6)  # three throughputs and three step times

        # A site shows imported results as a system of their own, without ratios.
        site = json.loads(self.call("site", "--json"))
        cells = [cell for cell in site["cells"] if cell["mode"] == "imported"]
        self.assertEqual(len(cells), 3)
        self.assertEqual([(cell["ratio"], cell["is_reference"]) for cell in cells], 3 * [(None, False)])
        self.assertEqual({cell["system"].split(" (")[0] for cell in cells}, {"imported doe-lab"})
        self.assertEqual(site["pairs"], [])

        table = self.call("table", self.file)
        self.assertIn("imported: results of others, compared with nothing", table)
        self.assertIn("± 1.0 % as stated", table)
        self.assertIn('columns not read: "rho"', self.import_table())
        self.assertIn("3 imported result(s), which are not compared", self.call("status", self.file))
        self.assertEqual(len(json.loads(self.call("import", "list", "--json"))), 3)
        # A table of this machine shows imported results, too.
        status = json.loads(self.call("status", self.file, "--json"))
        [system] = {trial["system"] for trial in status["trials"]}
        self.assertIn("doe-lab", self.call("table", self.file, "--system", system))
        # A rebuilt index has the same rows.
        listed = self.call("import", "list")
        self.call("index", "--rebuild")
        self.assertEqual(self.call("import", "list"), listed)

    def test_changed_numbers_are_refused_and_may_be_taken_out(self):
        self.import_table()
        output = self.import_table(text=TABLE.replace("900", "950"), code=1)
        self.assertRegex(output, r"refused: .*doe.csv:3: throughput of dense, digits-resnet, 2 workers.*: 950 "
                                 r"images/s, and imported/doe-lab/\S+ has throughput = 900 images/s")
        self.assertIn("nothing was imported", output)
        self.assertEqual(len(self.imported()), 3)
        [wrong] = [trial["trial_id"] for trial in self.imported()
                   if trial["metrics"]["throughput"]["value"] == 900]
        self.call("annotate", wrong, "--reason", "misread")
        self.assertIn("1 result(s) imported, 2 already here",
                      self.import_table(text=TABLE.replace("900", "950")))
        self.assertIn("950", self.call("import", "list"))
        self.assertNotIn("900 images", self.call("import", "list"))

    def test_what_cannot_be_is_refused(self):
        for text, code, said in (
                (TABLE.replace("GPUs", "Cards"), 2, 'GPUs": '),
                (TABLE.replace("WFBP,2", "wfpb,2"), 2, 'did you mean "wfbp"'),
                (TABLE.replace("900", "n/a"), 2, 'Rate = "n/a": expected a number'),
                (TABLE.replace("900", "450"), 1, "numbers of one worker, taken for all's?")):
            self.assertIn(said, self.import_table(text=text, code=code))
            self.assertEqual(self.imported(), [])
        self.assertIn('unit "tokens/s": expected images/s',
                      self.import_table("--set", "unit=tokens/s", code=2))
        kept = self.import_table("--keep-implausible", text=TABLE.replace("900", "450"))
        self.assertIn("doubtful: ", kept)
        self.assertIn("[1]", kept)

    def test_the_logs_of_three_programs(self):
        self.import_log("horovod.log", HOROVOD, "horovod-synthetic.toml", "workload=resnet50-imagenet",
                        "method=horovod-fusion")
        self.import_log("train.log", PYTORCH, "pytorch-imagenet.toml", "workload=resnet50-imagenet",
                        "method=dense", "workers=4", "batch_per_worker=64")
        self.import_log("result_0.txt", MLLOG, "mllog.toml", "workload=resnet50-imagenet", "method=dense",
                        "workers=8", "steps_per_epoch=384", "target=0.759")
        found = {(trial["config"]["method"], trial["config"]["workers"], trial["config"]["metric"]): trial
                 for trial in self.imported()}
        self.assertEqual(len(found), 4)
        horovod = found["horovod-fusion", 8, "throughput"]
        self.assertAlmostEqual(horovod["metrics"]["throughput"]["value"], 8 * 196)
        self.assertAlmostEqual(horovod["metrics"]["step_seconds"]["value"], 32 / 196)
        self.assertEqual(horovod["config"]["batch_per_worker"], 32)
        self.assertEqual(horovod["imported"]["steps"], 3)
        pytorch = found["dense", 4, "throughput"]  # the mean of 0.25, 0.26 and 0.24 s after the warm-up
        self.assertAlmostEqual(pytorch["metrics"]["step_seconds"]["value"], 0.25)
        self.assertAlmostEqual(pytorch["metrics"]["throughput"]["value"], 4 * 64 / 0.25)
        self.assertAlmostEqual(found["dense", 4, "final_metric"]["metrics"]["final_metric"]["value"], 0.21)
        mlperf = found["dense", 8, "final_metric"]["metrics"]
        self.assertEqual(mlperf["seconds_to_target"]["value"], 1200)
        self.assertEqual(mlperf["steps_to_target"]["value"], 8 * 384)
        output = self.import_log("horovod.log", HOROVOD, "horovod-synthetic.toml",
                                 "workload=resnet50-imagenet", "method=dense", "per=system", code=1)
        self.assertIn('by a factor of 8: is per = "system" right?', output)

    def test_what_graces_examples_log_by_iteration(self):
        self.import_log("history.csv", GRACE, "grace-history.toml", "workload=digits-resnet", "method=dense",
                        "workers=8", "batch_per_worker=256")
        [trial] = self.imported()
        self.assertAlmostEqual(trial["metrics"]["throughput"]["value"], 8 * 1024)  # after the warm-up
        self.assertAlmostEqual(trial["metrics"]["step_seconds"]["value"], 256 / 1024)
        self.assertEqual(trial["imported"]["steps"], 3)
        self.assertIn("local_throughput = \"x\"", self.import_log(
            "history.csv", GRACE.replace("1024.0", "x"), "grace-history.toml", "workload=digits-resnet",
            "method=dense", "workers=8", code=2))

    def test_they_travel_with_their_source_and_meet_as_one(self):
        self.import_table()
        bundle = self.folder / "imported.sparfuse"
        self.call("export", "imported", "--out", bundle)
        self.call("verify", bundle)
        self.assertIn("are not compared", self.call("compare", bundle, bundle, code=2))
        self.assertIn("sparfuse import list", self.call("table", "imported", code=2))
        shown = self.call("export", "imported", "--show")
        self.assertIn("citation trial.json: system.source", shown)
        self.assertNotIn(str(self.folder), shown)
        # A store that has imported the same file has the same trials.
        merged = self.call("merge", bundle)
        self.assertIn("0 trial(s) added, 3 already here", merged)
        other = self.folder / "other"
        call = lambda *words: subprocess.run(  # noqa: E731
            [self.program, "--results", other, *map(str, words)], text=True, capture_output=True,
            check=True, timeout=60).stdout
        call("import", "table", self.folder / "doe.csv", "--map", self.folder / "doe.toml")
        self.assertIn("0 trial(s) added, 3 already here", call("merge", bundle))
        # The same number in another file, and a file with a corrected number.
        lines = TABLE.splitlines(keepends=True)
        (self.folder / "again.csv").write_text(lines[0] + lines[3] + lines[1])
        (self.folder / "corrected.csv").write_text(lines[0] + lines[2].replace("900", "930"))
        for file, added, present in (("again.csv", 1, 2), ("corrected.csv", 3, 0)):
            other = self.folder / f"store-of-{file}"
            call("import", "table", self.folder / file, "--map", self.folder / "doe.toml")
            self.assertIn(f"{added} trial(s) added, {present} already here", call("merge", bundle))
            listed = call("import", "list")
            self.assertEqual("another import, " in listed, file == "corrected.csv", listed)
        third = self.folder / "third"
        self.results = third
        self.call("merge", bundle)
        self.assertIn("https://example.org/papers/42", self.call("import", "list"))
        self.assertIn("0 result(s) imported, 3 already here", self.import_table())

    @unittest.skipUnless(harness_test.HAS_MATPLOTLIB, "no matplotlib")
    def test_figures_and_reports_show_them_in_their_own_colour(self):
        self.write(text=harness_test.LIVE.replace("{expect}", 'expect = "more"'))
        self.call("run", self.file)
        self.import_table(text=TABLE.replace("500.0", "80").replace("900", "150").replace("1000", "170"))
        self.call("report", self.file)
        report = next(self.results.rglob("report.html")).read_text()
        for words in ("class='imported'", "Imported, compared with nothing:"):
            self.assertTrue(words in report, words)
        spec = json.loads(next(self.results.rglob("spec.json")).read_text())
        self.assertEqual(len(spec["parts"][0]["imported"]["results"]), 3)
        judged = spec["judged"]
        self.call("figure", self.file)
        figure = next(self.results.rglob("figures/*.svg")).read_text()
        self.assertTrue("#c400c4" in figure)
        for trial in self.imported():
            self.call("annotate", trial["trial_id"], "--reason", "gone")
        self.call("report", self.file)
        spec = json.loads(next(self.results.rglob("spec.json")).read_text())
        self.assertEqual(spec["judged"], judged)
        self.assertFalse("class='imported'" in next(self.results.rglob("report.html")).read_text())


if __name__ == "__main__":
    program.main()
