"""Tests `sparfuse site` as its user would: on the merged results of two machines and of a model, some of
which a hostile hand has written.

  site_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import re
import unittest
from pathlib import Path

import bundle_test
import harness_test
import program

HOSTILE = "</td><script>alert('x')</script>"


class SiteTest(bundle_test.Bundles):
    def site(self, results, *more, out="site", **options):
        said = self.call("site", "--out", self.folder / out, *more, results=results, **options)
        return said, self.content(out)

    def content(self, out):
        folder = self.folder / out
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    def two_machines(self):
        """The bundles of two machines; the second one's hardware has a hostile name."""
        both = '"dense", "wfbp"'
        self.make_store("a", blocks=2, methods=both)
        self.make_store("b", blocks=2, cores=512, methods=both)
        for file in self.trial_files("b"):
            self.edit(file, lambda trial: trial["system"].update(cpu_model=f"Cpu {HOSTILE}"))
        return self.export("a"), self.export("b")

    @unittest.skipUnless(harness_test.HAS_MATPLOTLIB, "needs matplotlib, which scripts/setup installs")
    def test_pages_over_the_merged_results_of_two_machines(self):
        bundles = self.two_machines()
        self.call("merge", *bundles, results="c")
        said, content = self.site("c")
        self.assertRegex(said, r"index\.html: 2 system\(s\), 2 method\(s\), 1 workload\(s\)")
        folders = sorted({Path(name).parts[0] for name in content if "/" in name})
        self.assertEqual(folders, ["experiments", "methods", "pairs", "systems", "workloads"])
        self.assertEqual(sum(name.startswith("pairs/") for name in content), 1)

        # A bundle's words are text. No page loads anything, or runs other scripts than its own.
        self.assertTrue(any(b"&lt;script&gt;alert" in text for text in content.values()))
        for name, text in content.items():
            if name.endswith(".html"):
                self.assertEqual(text.count(b"<script"), 1, name)
                self.assertEqual(re.findall(rb"(?:src|href)=.(?!data:)(?:\w+:)?//", text), [], name)
                self.assertIn(b"default-src 'none'; script-src 'sha256-", text)
                self.assertNotIn(str(self.folder).encode(), text)

        # Pages have the numbers of compare, and name their trials, which are in the store.
        data = json.loads(content["data.json"])
        heads = [system["key"] for system in data["systems"]]
        compared = json.loads(self.call("compare", *heads, "--json", results="c"))
        [pair] = data["pairs"]
        self.assertEqual([cell["first_over_second"] for cell in pair["cells"]],
                         [cell["first_over_second"] for cell in compared["cells"]])
        ids = {json.loads(file.read_text())["trial_id"] for file in self.trial_files("c")}
        named = [trial for cell in data["cells"] for trial in cell["trials"]]
        self.assertEqual(sorted(named), sorted(ids))
        self.assertEqual({cell["mode"] for cell in data["cells"]}, {"measured"})

        # Equal trials give equal bytes in any order of merging. Pages have a date only on request.
        self.call("merge", *reversed(bundles), results="d")
        self.assertEqual(self.site("d", out="again")[1], content)
        self.assertEqual(self.site("c")[1], content)
        self.assertIn(b" UTC</p>", self.site("c", "--dated")[1]["index.html"])
        self.assertEqual(json.loads(self.call("site", "--json", results="c")), data)

    def test_nobody_s_files_are_replaced(self):
        self.make_store("a")
        mine = self.folder / "site" / "thesis.tex"
        mine.parent.mkdir()
        mine.write_text("years")
        said, content = self.site("a", code=2)
        self.assertIn("thesis.tex, which no `sparfuse site` wrote", said)
        self.assertEqual(content, {"thesis.tex": b"years"})
        self.assertIn("expected --out DIR", self.call("site", results="a", code=2))
        self.assertIn("no results yet", self.site("nowhere", out="new", code=2)[0])
        self.assertEqual([*self.folder.glob("new*"), *self.folder.glob(".*unfinished*")], [])

    @unittest.skipUnless(harness_test.HAS_MATPLOTLIB, "needs matplotlib, which scripts/setup installs")
    def test_modelled_numbers_are_apart_and_a_described_system_has_its_name(self):
        self.make_store("a", blocks=2, methods='"dense", "wfbp"')
        profiles = self.folder / "a" / "profiles"
        profiles.mkdir()
        (profiles / "made-up.json").write_text(json.dumps(
            [harness_test.made_up_profile(ranks) for ranks in (1, 2, 4)]))
        self.file.write_text(harness_test.MODELLED)
        self.call("run", self.file, results="a")
        self.call("system", "init", "lab", results="a")
        data = json.loads(self.site("a")[1]["data.json"])
        names = {system["name"]: system["declared"] for system in data["systems"]}
        self.assertEqual(names, {"lab": False, "cluster made-up": True})
        page = (self.folder / "site" / "workloads" / "digits-resnet.html").read_text()
        for mode in ("measured", "modelled"):
            sortable = rf"<table class='sortable' id='{mode}-throughput'>.*?</table>"
            table = re.search(sortable, page, re.DOTALL).group()
            rows = re.findall(r"<tr class='(\w+)'", table)
            self.assertTrue(rows)
            self.assertEqual(set(rows), {mode})


if __name__ == "__main__":
    program.main()
