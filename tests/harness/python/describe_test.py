"""Tests model tables of PyTorch modules: work and order by hand, times, notes and the command."""

import contextlib
import doctest
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock
from itertools import count
from pathlib import Path

from usable_torch import torch

if torch is not None:
    from torch import nn

    import sparfuse.describe as described
    from sparfuse.describe import describe

    class Bottleneck(nn.Module):
        """A bottleneck block as in torchvision."""

        def __init__(self, inside, width, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(4 * width)
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

        def forward(self, x):
            y = self.bn1(self.conv1(x)).relu()
            y = self.bn2(self.conv2(y)).relu()
            return (self.bn3(self.conv3(y)) + self.downsample(x)).relu()

    class Resnet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 7, 2, padding=3, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            self.layer1 = Bottleneck(16, 8, 2)
            self.fc = nn.Linear(32, 10)

        def forward(self, x):
            return self.fc(self.layer1(self.bn1(self.conv1(x)).relu()).mean((2, 3)))

    class RowsAreInputs(nn.Module):
        """A linear layer as in Hugging Face's GPT-2: rows of the weight are inputs."""

        def __init__(self, inside, outside):
            super().__init__()
            self.weight = nn.Parameter(0.02 * torch.randn(inside, outside))
            self.bias = nn.Parameter(torch.zeros(outside))

        def forward(self, x):
            flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
            return flat.view(*x.shape[:-1], -1)

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.c_attn = RowsAreInputs(width, 3 * width)
            self.c_proj = RowsAreInputs(width, width)

        def forward(self, x):
            batch, length, width = x.shape
            parts = self.c_attn(x).view(batch, length, 3, self.heads, -1).transpose(1, 3).unbind(2)
            mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            return self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width))

    class Gpt(nn.Module):
        """A GPT of one layer, whose logits' weight is tied to the embedding of tokens."""

        def __init__(self, words=50, window=6, width=8):
            super().__init__()
            self.wte = nn.Embedding(words, width)
            self.wpe = nn.Embedding(window, width)
            self.ln_1 = nn.LayerNorm(width)
            self.attn = Attention(width, 2)
            self.ln_f = nn.LayerNorm(width)
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, tokens):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
            return self.head(self.ln_f(x + self.attn(self.ln_1(x))))


def macs_of(table):
    return {tensor["name"]: tensor["macs"] for tensor in table["tensors"]}


def names_of(table):
    return [tensor["name"] for tensor in table["tensors"]]


@unittest.skipIf(torch is None, "torch cannot be used")
class Describe(unittest.TestCase):
    def setUp(self):
        threads = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        torch.set_num_threads(1)
        torch.manual_seed(1)

    def describe(self, *given, **keywords):
        """The table; fails if there are notes."""
        notes = []
        table = describe(*given, note=notes.append, **keywords)
        self.assertEqual(notes, [])
        return table

    def test_a_residual_network(self):
        table = self.describe(Resnet(), torch.randn(4, 3, 32, 32), unit="images", family="resnet")
        # 16 x 16 positions before the block and in its first convolution, 8 x 8 from its second on.
        work = {
            "conv1.weight": 16 * 3 * 49 * 256,
            "layer1.conv1.weight": 16 * 8 * 256,
            "layer1.conv2.weight": 8 * 8 * 9 * 64,
            "layer1.conv3.weight": 8 * 32 * 64,
            "layer1.downsample.0.weight": 16 * 32 * 64,
            "fc.weight": 320,
        }
        self.assertEqual({name: macs for name, macs in macs_of(table).items() if macs}, work)
        # The catalog's order: the reverse of forward, but a norm's weight before its bias.
        norms = [f"layer1.{each}" for each in ("downsample.1", "downsample.0", "bn3", "conv3", "bn2",
                                               "conv2", "bn1", "conv1")] + ["bn1", "conv1"]
        order = ["fc.bias", "fc.weight"]
        for each in norms:
            order.append(f"{each}.weight")
            if f"{each}.bias" in macs_of(table):
                order.append(f"{each}.bias")
        self.assertEqual(names_of(table), order)
        self.assertEqual(table["batch_per_worker"], 4)
        self.assertEqual(table["tensors"][1]["shape"], [10, 32])
        self.assertNotIn("backward_us", table["tensors"][0])
        self.assertNotIn("measured_on", table)

    def test_a_decoder_with_tied_weights(self):
        words, window, width = 50, 6, 8
        table = self.describe(Gpt(words, window, width), torch.randint(words, (3, window)))
        work = {
            "wte.weight": window * words * width,  # in its use as the logits' weight
            "attn.c_attn.weight": window * 3 * width * width + 2 * window * window * width,
            "attn.c_proj.weight": window * width * width,
        }
        self.assertEqual({name: macs for name, macs in macs_of(table).items() if macs}, work)
        # A tied weight is ready at the place of its first use in forward.
        self.assertEqual(names_of(table)[:2], ["ln_f.weight", "ln_f.bias"])
        self.assertEqual(set(names_of(table)[-2:]), {"wpe.weight", "wte.weight"})
        self.assertLess(names_of(table).index("attn.c_attn.weight"), names_of(table).index("ln_1.bias"))

    def test_multihead_attention_inside_an_encoder(self):
        width, inside, length = 16, 32, 5
        model = nn.TransformerEncoderLayer(width, 2, inside, batch_first=True)
        table = self.describe(model, torch.randn(3, length, width))
        work = {
            "self_attn.in_proj_weight": 3 * length * width * width + 2 * length * length * width,
            "self_attn.out_proj.weight": length * width * width,
            "linear1.weight": length * width * inside,
            "linear2.weight": length * width * inside,
        }
        self.assertEqual({name: macs for name, macs in macs_of(table).items() if macs}, work)

    def test_separate_projections_share_attention(self):
        class Cross(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True)

            def forward(self, queries, keys, values):
                return self.attention(queries, keys, values)[0]

        inputs = torch.randn(2, 3, 8), torch.randn(2, 5, 6), torch.randn(2, 5, 4)
        macs = macs_of(self.describe(Cross(), inputs))
        mixing = 3 * 5 * 8
        self.assertEqual(macs["attention.q_proj_weight"], 3 * 8 * 8 + mixing / 2)
        self.assertEqual(macs["attention.k_proj_weight"], 5 * 8 * 6 + mixing / 2)
        self.assertEqual(macs["attention.v_proj_weight"], 5 * 8 * 4 + mixing)
        self.assertEqual(macs["attention.out_proj.weight"], 3 * 8 * 8)

    def test_recurrent_layers(self):
        lstm = nn.LSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)
        macs = macs_of(self.describe(lstm, torch.randn(3, 7, 6)))
        for name, parameter in lstm.named_parameters():
            self.assertEqual(macs[name], 7 * parameter.numel() if parameter.ndim == 2 else 0, name)
        cell = nn.GRUCell(6, 4)
        macs = macs_of(self.describe(cell, torch.randn(3, 6)))
        self.assertEqual((macs["weight_ih"], macs["weight_hh"]), (12 * 6, 12 * 4))

    def test_samples_on_another_axis_are_asked_for(self):
        for model in (nn.LSTM(5, 10), nn.Sequential(nn.TransformerEncoderLayer(5, 1, 8))):
            inputs = torch.randn(7, 4, 5)
            with self.assertRaisesRegex(ValueError, r"sample-axis 0 or 1 .*, of 7 or 4 samples"):
                self.describe(model, inputs)
            with self.assertRaisesRegex(ValueError, "sample-axis 3: expected 0 to 2"):
                self.describe(model, inputs, sample_axis=3)
            whole = {axis: sum(macs_of(self.describe(model, inputs, sample_axis=axis)).values()) for axis in (0, 1)}
            self.assertAlmostEqual(whole[1], whole[0] * 7 / 4, places=2)
        self.assertEqual(sum(macs_of(self.describe(nn.LSTM(5, 10), inputs, sample_axis=1)).values()), 7 * 40 * 15)

    def test_scripted_modules_are_noted(self):
        notes = []
        model = nn.Sequential(torch.jit.script(nn.Linear(5, 3)), nn.Linear(3, 2))
        table = describe(model, torch.randn(4, 5), note=notes.append)
        self.assertEqual(macs_of(table)["1.weight"], 6)
        self.assertEqual(notes, ["no product was counted, macs are 0: 0.weight", "1 scripted module(s) are not counted"])

    def test_an_element_of_a_complex_parameter_is_two_floats(self):
        class Spectral(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 4, 5, dtype=torch.cfloat))

            def forward(self, x):
                return torch.fft.irfft(torch.einsum("bix,iox->box", torch.fft.rfft(x), self.weight))

        notes = []
        table = describe(Spectral(), torch.randn(2, 4, 8), note=notes.append)
        self.assertEqual(table["tensors"], [{"name": "weight", "shape": [4, 4, 5, 2], "macs": 4 * 80}])
        self.assertEqual(notes, ["complex, an element is two floats: weight"])

    def test_convolutions_in_groups_and_transposed(self):
        model = nn.Sequential(nn.Conv1d(4, 8, 3, groups=2), nn.ConvTranspose1d(8, 2, 5))
        macs = macs_of(self.describe(model, torch.randn(2, 4, 10)))
        self.assertEqual(macs, {"0.weight": 8 * 8 * 2 * 3, "0.bias": 0,
                                "1.weight": 8 * 8 * 2 * 5, "1.bias": 0})

    def test_products_written_by_hand(self):
        class Plain(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(4, 3))
                self.c, self.d = nn.Parameter(torch.randn(2, 5)), nn.Parameter(torch.randn(7, 5))

            def forward(self, x):
                y = torch.einsum("bi,ij->bj", x, self.a) @ self.b
                return y, nn.functional.linear(x, self.c), x @ self.d.t()

        macs = macs_of(self.describe(Plain(), torch.randn(3, 5)))
        self.assertEqual(macs, {"a": 20, "b": 12, "c": 10, "d": 35})

    def test_what_the_table_misses_is_noted(self):
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                self.position = nn.Parameter(torch.zeros(1, 5))
                self.scale = nn.Parameter(torch.ones(()))
                self.unused = nn.Linear(2, 2)
                self.frozen = nn.Linear(5, 5).requires_grad_(False)
                self.out = nn.Linear(5, 2)

            def forward(self, x):
                return self.out(self.frozen(self.scale * x + self.position))

        notes = []
        table = describe(Odd(), torch.randn(3, 5), note=notes.append)
        self.assertEqual(set(names_of(table)), {"position", "scale", "out.weight", "out.bias"})
        self.assertEqual(macs_of(table)["out.weight"], 10)
        shapes = {tensor["name"]: tensor["shape"] for tensor in table["tensors"]}
        self.assertEqual((shapes["scale"], shapes["position"]), ([1], [1, 5]))
        self.assertEqual(notes, [
            "2 frozen parameters are left out, and their multiplications",
            "no gradient, therefore left out: unused.weight, unused.bias",
            "no product was counted, macs are 0: position"])

    def test_buffers_that_are_broadcast_are_counted(self):
        module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))
        module.register_buffer("mask", torch.zeros(3, dtype=torch.uint8), persistent=False)
        # Two statistics of four floats, a count of 8 bytes, and the mask.
        inputs = torch.randn(2, 3, 4, 4)
        self.assertEqual(describe(module, inputs)["broadcast_bytes"], 2 * 4 * 4 + 8 + 3)
        module._ddp_params_and_buffers_to_ignore = ["mask"]
        self.assertEqual(describe(module, inputs)["broadcast_bytes"], 2 * 4 * 4 + 8)
        self.assertNotIn("broadcast_bytes", describe(nn.Linear(3, 2), torch.randn(2, 3)))

    def test_the_module_stays_as_it_was(self):
        model = Resnet()
        model.fc.weight.grad = torch.full_like(model.fc.weight, 3)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        describe(model, torch.randn(4, 3, 32, 32), measure=1)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertTrue((model.fc.weight.grad == 3).all())
        self.assertIsNone(model.fc.bias.grad)
        self.assertFalse(model.fc._forward_hooks or model.fc._forward_pre_hooks)

    def test_times_of_each_gradient_and_what_they_were_measured_on(self):
        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                return x.clone()

            @staticmethod
            def backward(context, gradient):
                time.sleep(0.02)
                return gradient

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

            def forward(self, x):
                return self.last(Slow.apply(self.first(x)))

        table = describe(Model(), torch.randn(2, 4), measure=3)
        self.assertEqual(names_of(table), ["last.weight", "first.weight"])
        last, first = (tensor["backward_us"] for tensor in table["tensors"])
        self.assertGreater(first, 20000)  # backward sleeps between the two gradients
        self.assertGreaterEqual(last, 0)
        self.assertGreater(table["forward_us"], 0)
        self.assertGreater(table["update_us"], 0)
        self.assertEqual(table["batch"], 2)
        self.assertIn("float32, torch", table["measured_on"])

    def test_times_are_those_since_the_gradient_before(self):
        ticking = types.SimpleNamespace(perf_counter=count().__next__)  # each reading is a second later
        model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
        with unittest.mock.patch.object(described, "time", ticking):
            table = describe(model, torch.randn(2, 4), measure=3)
        times = [tensor["backward_us"] for tensor in table["tensors"]]
        self.assertEqual([*times, table["forward_us"], table["update_us"]], [1e6] * 5)

    def test_outputs_losses_and_inputs_of_other_forms(self):
        class Answers(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = nn.Linear(3, 1), nn.Linear(3, 1)

            def forward(self, x, steps):
                return {"one": self.one(x), "two": [self.two(x), steps]}

        inputs = {"x": torch.randn(6, 3), "steps": torch.tensor(1)}
        self.assertEqual(len(self.describe(Answers(), inputs)["tensors"]), 4)
        notes = []
        table = describe(Answers(), inputs, loss=lambda out: out["two"][0].mean(), note=notes.append)
        self.assertEqual(names_of(table), ["two.bias", "two.weight"])
        self.assertIn("one.weight", notes[0])
        self.assertEqual(macs_of(self.describe(Answers(), inputs, samples=3))["one.weight"], 6)
        with self.assertRaisesRegex(ValueError, "the loss has 6 element.*expected a scalar"):
            describe(Answers(), inputs, loss=lambda out: out["one"])
        with self.assertRaisesRegex(ValueError, "no parameter of the module is trained"):
            describe(nn.ReLU(), torch.randn(2, 3))

    def test_examples_of_the_docstrings_run(self):
        done = doctest.testmod(described)
        self.assertEqual(done.failed, 0)
        self.assertGreater(done.attempted, 3)


@unittest.skipIf(torch is None, "torch cannot be used")
class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sparfuse-describe-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "mine.py").write_text(
            "import torch\n"
            "def plain():\n    return torch.nn.Linear(12, 5)\n"
            "def tokens():\n    return torch.nn.Embedding(30, 4)\n"
            "def complete():\n    return plain(), torch.randn(6, 12), torch.Tensor.mean\n"
            "def wrong():\n    return 3\n")

        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.addCleanup(sys.path.__setitem__, slice(None), sys.path[:])

    def table(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            described._main([*arguments, "-o", "my-model.json"])
        return json.loads((self.folder / "my-model.json").read_text()), printed.getvalue()

    def refusal(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            with self.assertRaises(SystemExit) as ended:
                described._main([*arguments])
        self.assertEqual(ended.exception.code, 2)
        return said.getvalue()

    def test_runs_as_a_program_and_as_a_script(self):
        script = Path(__file__).resolve().parents[3] / "harness/python/sparfuse/describe.py"
        for name, form in (("module", ["-m", "sparfuse.describe"]), ("script", [script])):
            done = subprocess.run(
                [sys.executable, *form, "mine.py:complete", "-o", f"{name}.json"],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f'workload = "table:{name}.json"', done.stdout)
            self.assertEqual(len(json.loads((self.folder / f"{name}.json").read_text())["tensors"]), 2)

    def test_writes_the_table_of_what_a_factory_makes(self):
        table, printed = self.table("mine.py:plain", "--input-shape", "12", "--unit", "images",
                                    "--batch", "4", "--family", "vgg", "--source", "by hand")
        self.assertEqual(table, {
            "name": "my-model", "unit": "images", "units_per_sample": 1, "batch_per_worker": 4,
            "family": "vgg", "source": "by hand",
            "tensors": [{"name": "bias", "shape": [5], "macs": 0},
                        {"name": "weight", "shape": [5, 12], "macs": 60}]})
        self.assertIn("2 tensors, 65 parameters, 60 multiply-accumulates a sample", printed)
        self.assertIn('workload = "table:my-model.json"', printed)

    def test_takes_inputs_and_loss_of_the_factory(self):
        table, _ = self.table("mine:complete", "--measure", "2")
        self.assertEqual((table["batch"], table["batch_per_worker"]), (6, 6))
        self.assertIn("medians of 2 steps", table["measured_on"])
        self.assertIn("mine:complete", table["source"])

    def test_makes_integers(self):
        table, _ = self.table("mine.py:tokens", "--input-shape", "7:30")
        self.assertEqual(table["tensors"], [{"name": "weight", "shape": [30, 4], "macs": 0}])

    def test_mistakes_are_said(self):
        for arguments, expected in (
                (["mine.py"], 'expected "package.module:callable"'),
                (["absent.py:plain"], "absent.py is not there"),
                (["absent:plain"], "No module named 'absent'"),
                (["mine.py:plane"], 'has no "plane"'),
                (["mine.py:plain"], "returned no inputs: expected --input-shape"),
                (["mine.py:complete", "--input-shape", "12"], "expected no --input-shape"),
                (["mine.py:plain", "--input-shape", "twelve"], "--input-shape twelve: expected"),
                (["mine.py:wrong", "--input-shape", "12"], "returned int: expected a torch.nn.Module")):
            with self.subTest(arguments):
                self.assertIn(expected, self.refusal(*arguments, "-o", "t.json"))
                self.assertFalse((self.folder / "t.json").exists())
        Path("theirs.py").write_text(
            "import sys, torch\nclass Boom(torch.nn.Linear):\n    def forward(self, x):\n"
            "        raise ValueError('no such\\nluck')\n"
            "def boom(): return Boom(3, 2), torch.randn(4, 3)\n"
            "def shapes(): return torch.nn.Linear(3, 2), torch.randn(4, 5)\n"
            "def ends(): sys.exit(4)\ndef three(): return torch.nn.Linear(3, 2), torch.randn(4, 3), 3\n"
            "def argv():\n    assert sys.argv == ['theirs.py'], sys.argv\n    raise KeyError('argv')\n")
        for factory, expected in (
                ("boom", "theirs.py:4: ValueError: no such (--traceback shows the rest)\n"),
                ("shapes", "RuntimeError: mat1 and mat2"), ("ends", "ended the program: exit 4"),
                ("three", "returned a loss of type int"), ("argv", "KeyError: 'argv'")):
            with self.subTest(factory):
                said = self.refusal(f"theirs.py:{factory}", "-o", "t.json")
                self.assertIn(expected, said)
                self.assertEqual(said.count("\n"), 1, said)
        plain = ("mine.py:plain", "--input-shape", "12")
        self.assertIn("expected NAME.json", self.refusal(*plain, "-o", "my model.json"))


if __name__ == "__main__":
    unittest.main()
