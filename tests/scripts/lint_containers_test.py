"""Tests what the check of the files for containers says: each mistake with its file and line."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import lint_containers as lint

CONTAINERFILE = """\
# comment
FROM debian:bookworm
COPY . /sparfuse
RUN cd /sparfuse && \\
    scripts/build
ENTRYPOINT ["/sparfuse/build/sparfuse"]
"""
DEFINITION = """\
Bootstrap: docker
From: debian:bookworm
%files
    core /sparfuse/core
    scripts /sparfuse/scripts
%post
    cd /sparfuse && scripts/build
"""
FILES = ["core/a.cpp", "scripts/build", "README.md", lint.CONTAINERFILE, lint.DEFINITION, *lint.IGNORES]


class Containers(unittest.TestCase):
    def complaints(self, files=FILES, ignores=("build\n", "build\n"), containerfile=("", ""), definition=("", "")):
        """The complaints about the files above, with an (old, new) text replaced in them."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            texts = [CONTAINERFILE.replace(*containerfile), DEFINITION.replace(*definition), *ignores]
            for name, text in zip((lint.CONTAINERFILE, lint.DEFINITION, *lint.IGNORES), texts):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(lint.complaints(root, files))

    def test_nothing_is_wrong_with_good_ones(self):
        self.assertEqual(self.complaints(definition=("    core", "    README.md /sparfuse/\n    core")), [])

    def test_mistakes_are_named_with_their_line(self):
        place, other = lint.CONTAINERFILE, lint.DEFINITION
        complete = ("%files\n", "%files\n    README.md /sparfuse/\n")
        for replaced, said in (
            (("COPY", "COPPY"), f"{place}:3: COPPY is no instruction"),
            (("# comment", "RUN true"), f"{place}:1: RUN before FROM"),
            (("COPY . /sparfuse", "COPY /sparfuse"), f"{place}:3: COPY expects sources and a destination"),
            (("COPY . ", "COPY cores "), f"{place}:3: cores is not of the tree"),
            (("scripts/build", "scripts/biuld"), f"{place}:4: scripts/biuld is not there"),
            (('["/sparfuse/build/sparfuse"]', "/sparfuse/run"),
             f'{place}:6: ENTRYPOINT expects ["word", ...], which no shell reads'),
        ):
            self.assertEqual(self.complaints(containerfile=replaced, definition=complete), [said])
        for replaced, said in (
            (("%post", "%posts"), f"{other}:6: %posts is no section"),
            (("From:", "Form:"), f"{other}:2: Form is no keyword of the header"),
            (("    core", "    cores"), f"{other}:4: cores is not of the tree"),
            (("    core /sparfuse/core\n", ""), f"{other}: core of the tree is not among %files"),
            (("scripts/build", "scripts/biuld"), f"{other}:7: scripts/biuld is not there"),
        ):
            self.assertIn(said, self.complaints(definition=replaced))

    def test_what_is_left_out_is_the_same_for_both_builders(self):
        said = self.complaints(ignores=("build\n", ""), definition=("%files\n", "%files\n    README.md /\n"))
        self.assertEqual(said, [".dockerignore: expected the same as .containerignore"])
        self.assertEqual(self.complaints(files=FILES[:3]), [f"{lint.CONTAINERFILE} is not there"])


if __name__ == "__main__":
    unittest.main()
