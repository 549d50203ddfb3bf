#!/usr/bin/env python3
"""Tests that AArch64's kernels of selection give what this machine's give, bit for bit: builds
kernel_digests.cpp for AArch64 and runs it under emulation.

  aarch64_test.py PATH/TO/kernel_digests    built for this machine

Debian's g++-aarch64-linux-gnu and qemu-user are needed; without them the test is skipped, and says so.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[4]
CROSS = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
SYSROOT = "/usr/aarch64-linux-gnu"
FLAGS = [
    "-std=c++20",
    "-O2",
    "-DNDEBUG",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    f"-I{ROOT}",
]
SOURCES = [
    "tests/core/sparsify/kernels/kernel_digests.cpp",
    "core/base/cpu.cpp",
    "core/base/options.cpp",
    "core/sparsify/scan/simd/select_kernels.cpp",
    "core/sparsify/adtopk/fibre_kernels.cpp",
    "core/sparsify/scan/simd/select_kernels_neon.cpp",
    "core/sparsify/adtopk/fibre_kernels_neon.cpp",
]
DIGESTS = sys.argv.pop()


class AArch64(unittest.TestCase):
    def digests(self, command):
        done = subprocess.run(
            list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True
        )
        return dict(line.split() for line in done.stdout.splitlines())

    def test_kernels_give_what_this_machine_gives(self):
        missing = [tool for tool in (CROSS, EMULATOR) if shutil.which(tool) is None]
        if missing:
            self.skipTest(
                f"no {' and no '.join(missing)}: install g++-aarch64-linux-gnu and qemu-user"
            )
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "kernel_digests"
            subprocess.run(
                [CROSS, *FLAGS, *(ROOT / source for source in SOURCES), "-o", program], check=True
            )
            there = self.digests([EMULATOR, "-L", SYSROOT, program])
            self.assertEqual(set(there), {"portable", "neon"})
            self.assertEqual(len(set(there.values())), 1, there)
            here = self.digests([DIGESTS])
            self.assertIn("portable", here)
            self.assertEqual(set(here.values()), set(there.values()), (here, there))


if __name__ == "__main__":
    unittest.main()
