"""Tests what ends with the interpreter, or begins in another one: programs, each a process."""

import subprocess
import sys
import tempfile
import unittest


def run(program, timeout=60):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=timeout)


# A program that ends while a thread still works.
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


# A training: some steps, perhaps a checkpoint between them; it prints the payload of the last step.
STEPS = """
import hashlib, pickle, sys
import numpy, sparfuse
def made():
    return {made}
def step(o, number):
    g = numpy.random.default_rng(number).standard_normal((40, 50), dtype=numpy.float32)
    {step}
    return hashlib.sha256(b"".join(numpy.ascontiguousarray(a).tobytes() for a in sent)).hexdigest()
file, what = sys.argv[1:]
o = made()
if what == "saves":
    for number in range(4):
        step(o, number)
    with open(file, "wb") as out:
        pickle.dump({{"object": o, "state": o.state_dict()}}, out)
    raise SystemExit
first = 0
if what != "goes on":
    first = 4
    with open(file, "rb") as saved:
        there = pickle.load(saved)
    if what == "unpickles":
        o = there["object"]
    else:
        o.load_state_dict(there["state"])
for number in range(first, 8):
    last = step(o, number)
print(last)
"""

NEGATED = """
import sys
try:
    import torch
except ImportError:
    raise SystemExit(77)
import numpy, sparfuse
negated = torch.complex(torch.zeros(4), torch.ones(4)).conj().imag
conjugate = torch.complex(torch.zeros(4), torch.ones(4)).conj()
s = sparfuse.Sparsifier("topk", density=0.5)
out = torch.zeros(4)
for call in (lambda: s.select(negated), lambda: s.select(conjugate),
             lambda: sparfuse.ErrorFeedback(s).step("w", negated),
             lambda: sparfuse.Quantizer("sign").encode(negated),
             lambda: sparfuse.PowerSGD().compute_p("w", negated.reshape(2, 2)),
             lambda: sparfuse.Method("wfbp", 2, [("w", 4)]).step([{"w": negated}, {"w": negated}]),
             lambda: sparfuse.decompress([s.select(numpy.ones(4, numpy.float32))], 4,
                                         out=torch._neg_view(out))):
    try:
        call()
    except TypeError as error:
        print(error)
    else:
        print("taken")
assert out.tolist() == [0, 0, 0, 0]
"""


class Checkpoints(unittest.TestCase):
    objects = {
        "feedback": ("sparfuse.ErrorFeedback(sparfuse.Sparsifier('topk', density=0.05))",
                     "sent = [*o.step('w', g), o.residual('w')]"),
        "momentum": ("sparfuse.ErrorFeedback(sparfuse.Sparsifier('randomk', density=0.05, seed=3),"
                     " feedback='momentum', momentum=0.8)",
                     "sent = [*o.step('w', g), o.residual('w'), o.velocity('w')]"),
        "low rank": ("sparfuse.PowerSGD(rank=2, seed=5, workers=2)",
                     "sent = [o.average({'w': [g, 2 * g]})['w'], o.residual('w', 1)]"),
    }

    def test_another_process_goes_on_bit_for_bit(self):
        for what, (made, step) in self.objects.items():
            program = STEPS.format(made=made, step=step)
            with self.subTest(what), tempfile.TemporaryDirectory() as folder:
                def ended(how, file=folder + "/saved"):
                    done = subprocess.run([sys.executable, "-c", program, file, how], capture_output=True, text=True,
                                          timeout=60)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    return done.stdout

                ended("saves")
                whole = ended("goes on")
                self.assertEqual(len(whole.strip()), 64)
                self.assertEqual([ended("unpickles"), ended("loads")], [whole, whole])


class Negated(unittest.TestCase):
    def test_tensors_that_are_negated_when_read_are_refused_by_every_part(self):
        ended = run(NEGATED)
        if ended.returncode == 77:
            self.skipTest("torch is not installed")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        for said in ended.stdout.splitlines():
            self.assertRegex(said, r"(negative|conjugate) bit.*resolve_(neg|conj)\(\)")
        self.assertEqual(len(ended.stdout.splitlines()), 7)


if __name__ == "__main__":
    unittest.main()
