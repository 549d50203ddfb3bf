"""Tests how a user describes a system, as docs/comparing/systems.md says.

  system_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import re

from program import ProgramTest, main

ASKED = ["title", "network.kind", "network.gbps", "network.topology", "node[0].count"]


class SystemTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.file = self.results / "systems/lab.toml"

    def call(self, *arguments, code=0):
        return super().call("system", *arguments, code=code)

    def change(self, *changes):
        text = self.file.read_text()
        for pattern, value in changes:
            text, times = re.subn(pattern, value, text, count=1, flags=re.MULTILINE)
            self.assertEqual(times, 1, pattern)
        self.file.write_text(text)

    def fill(self):
        """Fills in the requested fields: two nodes, whose link is slower than any card."""
        self.change(("^title = \\S+", 'title = "the lab"'), ("^kind = \"CHANGEME\"", "kind = 'x'"),
                    ("^gbps = \"CHANGEME\"", "gbps = 0.001"), ("^topology = \\S+", "topology = 'x'"),
                    ("^count = \"CHANGEME\"", "count = 2"))

    def problems(self):
        return json.loads(self.call("check", "lab", "--json", code=1).split("\nerror:")[0]
                          )["problems"]

    def test_from_init_to_a_system_that_is_checked(self):
        self.assertIn("wrote", self.call("init", "lab"))
        self.assertEqual([each["key"] for each in self.problems()], ASKED)
        self.assertRegex(self.call("check", "lab", code=1),
                         r'error: \S+lab.toml:\d+: title = "CHANGEME": expected ')
        self.fill()
        self.assertIn("2 node(s)", self.call("check", "lab"))

    def test_init_changes_nothing_where_this_node_is_described(self):
        self.call("init", "lab")
        self.fill()
        before = self.file.read_bytes()
        self.assertIn("nothing to add", self.call("init", "lab"))
        self.assertEqual(self.file.read_bytes(), before)

    def test_an_unlike_node_adds_itself_behind_what_is_there(self):
        self.call("init", "lab")
        self.fill()
        self.change(("^cores = \\d+", "cores = 12345"))
        before = self.file.read_text()
        self.assertIn("node[1]", self.call("init", "lab"))
        self.assertTrue(self.file.read_text().startswith(before))
        self.assertEqual(self.file.read_text().removeprefix(before), self.call("init", "--print"))
        self.change(("^count = \"CHANGEME\"", "count = 1"))
        said = json.loads(self.call("check", "lab", "--json"))
        self.assertEqual((said["problems"], said["node"]), ([], 1))

    def test_what_contradicts_this_node_is_named(self):
        self.call("init", "lab")
        self.fill()
        cores = re.search(r"^cores = (\d+)", self.file.read_text(), re.MULTILINE)[1]
        self.change(("^cores = \\d+", "cores = 12345"))
        said = self.call("check", "lab", code=1)
        self.assertRegex(said, rf"lab\.toml:\d+: node\[0\]\.cores = 12345: expected {cores}, as "
                               "detected here")

    def test_a_renamed_system_is_the_same(self):
        self.call("init", "lab")
        self.fill()
        other = self.file.with_name("moved.toml")
        other.write_text(self.file.read_text().replace("the lab", "the other name of the lab"))
        self.assertIn("the same system as", self.call("check", "lab"))
        other.write_text(other.read_text().replace("gbps = 0.001", "gbps = 0.0005", 1))
        self.assertNotIn("the same", self.call("check", "lab"))

    def test_mistakes_name_file_and_key(self):
        self.assertIn("sparfuse system init", self.call("check", "lab", code=2))
        self.assertIn('system name "../x"', self.call("init", "../x", code=2))
        self.call("init", "lab")
        self.change(("^cores", "cors"))
        for verb in ("check", "init"):
            self.assertRegex(self.call(verb, "lab", code=2), r'lab\.toml:\d+: .*"cors"')


if __name__ == "__main__":
    main()
