"""Tests what ends with the interpreter, or begins in another one: programs, each a process."""

import subprocess
import sys
import unittest


def run(program, timeout=60):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=timeout)


# A thread that is at work when the program ends; `work` has the numbers of the loop `i`.
DAEMON = """
import sys, threading, time
import numpy, sparfuse
g = numpy.random.default_rng(0).standard_normal(300_000, dtype=numpy.float32)
class Largest:
    def select(self, g, k):
        return numpy.argpartition(-abs(g), k)[:k]
sparfuse.register_sparsifier("largest", Largest)
{setup}
working = threading.Event()
def loop():
    while True:
        {work}
        working.set()
threading.Thread(target=loop, daemon=True).start()
working.wait()
time.sleep(0.05)
{end}
"""


class DaemonThreads(unittest.TestCase):
    objects = {
        "select": ("o = sparfuse.Sparsifier('topk', density=0.01)", "o.select(g)"),
        "select of Python": ("o = sparfuse.Sparsifier('largest', density=0.01)", "o.select(g)"),
        "step": ("o = sparfuse.ErrorFeedback(sparfuse.Sparsifier('topk', density=0.01))",
                 "o.step('w', g)"),
        "encode": ("o = sparfuse.Quantizer('sign')", "o.encode(g)"),
        "average": ("o = sparfuse.PowerSGD(workers=2); g = g.reshape(300, 1000)",
                    "o.average({'w': [g, g]})"),
        "method": ("o = sparfuse.Method('wfbp', 2, [('w', g.size)], sparsifier='largest')",
                   "o.step([{'w': g}, {'w': g}])"),
    }

    def test_a_program_ends_with_its_own_status_while_one_works(self):
        for what, (setup, work) in self.objects.items():
            for end, status in [("", 0), ("sys.exit(3)", 3), ("raise KeyError('mine')", 1)]:
                with self.subTest(what, end=end):
                    ended = run(DAEMON.format(setup=setup, work=work, end=end))
                    self.assertEqual(ended.returncode, status, ended.stderr)
                    if status != 1:
                        self.assertEqual(ended.stderr, "")

    def test_one_thread_of_the_pool_too(self):
        setup, work = self.objects["select"]
        ended = run(DAEMON.format(setup="sparfuse.set_threads(1); " + setup, work=work, end=""))
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


IMPORT = """
try:
    import {module} as interpreters
except ImportError:
    raise SystemExit(77)
{before}
own = interpreters.create()
made = interpreters.run_string(own, '''
try:
    import sparfuse._core
except ImportError as error:
    print(error)
''')
if made is not None:
    print(made)
"""


class OtherInterpreters(unittest.TestCase):
    def test_import_is_refused_at_once(self):
        ran = 0
        for module in ["_xxsubinterpreters", "_interpreters"]:
            for before in ["", "import sparfuse"]:
                with self.subTest(module, before=before):
                    ended = run(IMPORT.format(module=module, before=before))
                    if ended.returncode == 77:
                        continue
                    ran += 1
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                    self.assertRegex(ended.stdout, "interpreter")
                    if module == "_xxsubinterpreters":
                        self.assertRegex(ended.stdout, "main interpreter of a process only")
        if ran == 0:
            self.skipTest("this Python has no module of interpreters")


if __name__ == "__main__":
    unittest.main()
