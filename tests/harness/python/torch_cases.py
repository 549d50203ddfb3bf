"""What torch_test.py runs with a Python that has torch: torch_cases.py RANKS CASE...

Forks the ranks, which run the cases one after the other over one gloo group each. Prints "CASE ok" for each that
passed on all ranks; a rank that fails prints its traceback, and the others end within the time limit."""

import contextlib
import copy
import gc
import io
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import sparfuse
import sparfuse.torch as sf

warnings.filterwarnings("ignore")
LIMIT_SECONDS = 240
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


# --- Models ---


def mlp():
    return nn.Sequential(
        nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.norm, self.last = nn.BatchNorm2d(8), nn.Linear(16 * 4, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x.view(-1, 1, 6, 6))))
        return self.last(F.relu(self.second(x)).flatten(1))


class Gpt(nn.Module):
    """A GPT of two blocks with a tied embedding."""

    def __init__(self, words=50, width=32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(8, width)
        layer = lambda: nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.blocks = nn.ModuleList([layer(), layer()])
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


MODELS = {
    "mlp": (mlp, lambda g: (torch.randn(8, 24, generator=g), torch.randint(10, (8,), generator=g))),
    "conv": (
        Conv,
        lambda g: (torch.randn(8, 36, generator=g), torch.randint(10, (8,), generator=g)),
    ),
    "gpt": (
        Gpt,
        lambda g: (torch.randint(50, (4, 8), generator=g), torch.randint(50, (4, 8), generator=g)),
    ),
}


def loss_of(model, batch):
    inputs, targets = batch
    out = model(inputs)
    return F.cross_entropy(out.flatten(0, -2) if out.dim() == 3 else out, targets.flatten())


def batches(name, rank, steps):
    generator = torch.Generator().manual_seed(1000 + rank)
    return [MODELS[name][1](generator) for _ in range(steps)]


def train(model, given, optimizer=None):
    """A step for each batch; by default of SGD, which keeps no state."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in given:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


def gathered(value):
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, value)
    return everybody


class Oracle:
    """A sparfuse.Method that gets the gradients of all ranks."""

    def __init__(self, model, method, **options):
        layout = [(n, tuple(p.shape)) for n, p in model.named_parameters() if p.requires_grad][::-1]
        self.method = sparfuse.Method(method, dist.get_world_size(), layout, threads=1, **options)

    def step(self, local):
        gradients = [
            {n: t.numpy() for n, t in grads.items() if t is not None} for grads in gathered(local)
        ]
        return self.method.step(gradients)


def local_gradients(model, loss, allow_unused=False):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    grads = torch.autograd.grad(
        loss, [p for _, p in named], retain_graph=True, allow_unused=allow_unused
    )
    return {
        n: None if g is None else g.detach().clone().contiguous() for (n, _), g in zip(named, grads)
    }


def require_equal(model, averages, exact=True, scale=1.0):
    for name, parameter in model.named_parameters():
        if name not in averages:
            continue
        expected = torch.from_numpy(averages[name]) * scale
        found = parameter.grad.contiguous()
        if exact:
            assert torch.equal(found.view(torch.int32), expected.view(torch.int32)), (
                name,
                found,
                expected,
            )
        else:
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def require_oracles_step(model, oracle, batch, exact=True, allow_unused=False):
    """One backward pass, whose averages are those of the oracle."""
    model.zero_grad()
    loss = loss_of(model, batch)
    local = local_gradients(model, loss, allow_unused)
    loss.backward()
    require_equal(model, oracle.step(local), exact)


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert re.search(text, str(error)), f"{error!r} does not say {text!r}"
        return str(error)
    raise AssertionError(f"nothing was raised; expected {text!r}")


def refuses(text, call):
    return raises(sparfuse.ConfigError, text, call)


def made(name="mlp", method="wfbp", density=0.05, **options):
    torch.manual_seed(dist.get_rank())  # models differ; distribute makes them equal
    model = MODELS[name][0]()
    return sf.distribute(model, method, density=density, threads=1, deadline_seconds=20, **options)


def made_with_oracle():
    model = made()
    return model, Oracle(model, "wfbp", density=0.05)


def batch_of_rank():
    return batches("mlp", dist.get_rank(), 1)[0]


def checkpoint_of(model, of=None):
    """What a checkpoint has of a model, and of `of`, which keeps the method's state."""
    return copy.deepcopy({"model": model.state_dict(), "sparfuse": sf.state_dict(of or model)})


def resume(model, state, of=None):
    model.load_state_dict(state["model"])
    sf.load_state_dict(of or model, state["sparfuse"])


def through_a_file(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def of_twice_as_many_ranks(state):
    states = gathered(state)
    for each in states:
        each["world_size"] = 2 * len(states)
    return states + [{**each, "rank": each["rank"] + len(states)} for each in states]


def require_alike(one, other, of=""):
    for (name, a), b in zip(one.named_parameters(), other.parameters()):
        assert torch.equal(a, b), (of, name)


# --- Values ---

METHODS = {
    "dense": dict(method="dense"),
    "topk": dict(method="wfbp"),
    "dgc": dict(method="wfbp", sparsifier="dgc", feedback="momentum", clip=2.0),
    "safusion": dict(method="safusion"),
    "ssfusion": dict(method="ssfusion"),
}


def equals_method(name, options, steps=5):
    options = {**options, "density": 0.05}
    method = options.pop("method")
    model = made(name, method, **options)
    oracle = Oracle(model, method, **options)
    optimizer = sf.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for batch in batches(name, dist.get_rank(), steps):
        require_oracles_step(model, oracle, batch, exact=method != "dense" or dist.get_world_size() == 2)
        optimizer.step()
    weights = gathered([p.detach().numpy().tobytes() for p in model.parameters()])
    assert all(w == weights[0] for w in weights), "replicas differ"
    sf.detach(model)


for _model in MODELS:
    for _method in METHODS:

        def _equal(model=_model, method=_method):
            equals_method(model, METHODS[method])

        _equal.__name__ = f"equals_{_model}_{_method}"
        case(_equal)


def live_methods():
    """The names of the methods that sf.distribute runs with this many ranks; the others say what to write."""
    for method in sparfuse.list_methods():
        if method["strategy"].endswith("local-steps") or method["name"] == "delayed-gradients":
            refuses("or sparfuse.Method", lambda name=method["name"]: made("mlp", name))
            continue
        try:
            Method = sparfuse.Method(
                method["name"], dist.get_world_size(), [("w", (4,))], threads=1
            )
            del Method
        except sparfuse.Error:
            continue  # the method cannot run with threads, or with this many ranks
        yield method["name"]


@case
def every_method():
    ran = set()
    for name in live_methods():
        model = made("mlp", name)
        oracle = Oracle(model, name, density=0.05)
        for batch in batches("mlp", dist.get_rank(), 2):
            require_oracles_step(model, oracle, batch, exact=False)
        sf.detach(model)
        ran.add(name)
    assert {"dense", "wfbp", "safusion", "ssfusion", "oktopk", "powersgd"} <= ran, ran


@case
def accumulation():
    model, oracle = made_with_oracle()
    for step in range(2):
        model.zero_grad(set_to_none=False)
        total = None
        for micro, batch in enumerate(batches("mlp", dist.get_rank() + 10 * step, 3)):
            loss = loss_of(model, batch) / 3
            local = local_gradients(model, loss)
            total = local if total is None else {n: total[n] + local[n] for n in total}
            if micro < 2:
                with model.no_sync():
                    loss.backward()
            else:
                loss.backward()
        require_equal(model, oracle.step(total))
    # The pass that sends does not reach the last layer, whose gradients are the first pass's.
    model.zero_grad()
    inputs, targets = batch_of_rank()
    hidden = model[:3](inputs)
    losses = F.cross_entropy(model[3:](hidden), targets), hidden.square().mean()
    locals_ = [local_gradients(model, loss, allow_unused=True) for loss in losses]
    with model.no_sync():
        losses[0].backward(retain_graph=True)
    losses[1].backward()
    both = {n: g if locals_[1][n] is None else g + locals_[1][n] for n, g in locals_[0].items()}
    require_equal(model, oracle.step(both))


@case
def unused_on_one_rank_and_on_all():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.maybe, self.never = (nn.Linear(24, 10) for _ in range(3))

        def forward(self, x):
            out = self.body(x)
            return out + self.maybe(x) if dist.get_rank() == 0 else out

    MODELS["branches"] = (Branches, MODELS["mlp"][1])
    model = made("branches")
    oracle = Oracle(model, "wfbp", density=0.05)
    for batch in batches("mlp", dist.get_rank(), 3):
        require_oracles_step(model, oracle, batch, allow_unused=True)
        assert model.never.weight.grad.count_nonzero() == 0


@case
def frozen_and_bf16_and_channels_last():
    torch.manual_seed(0)
    model = Conv().to(memory_format=torch.channels_last)
    model.last.bias.requires_grad_(False)
    sf.distribute(model, "wfbp", density=0.05, threads=1)
    oracle = Oracle(model, "wfbp", density=0.05)
    for batch in batches("conv", dist.get_rank(), 3):
        require_oracles_step(model, oracle, batch)
        assert model.last.bias.grad is None
    sf.detach(model)
    model = mlp().to(torch.bfloat16)
    sf.distribute(model, "wfbp", density=0.05, threads=1)
    oracle = Oracle(model, "wfbp", density=0.05)
    batch = batch_of_rank()
    loss = loss_of(model, (batch[0].bfloat16(), batch[1]))
    local = {n: g.float() for n, g in local_gradients(model, loss).items()}
    loss.backward()
    averages = oracle.step(local)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, torch.from_numpy(averages[name]).bfloat16()), name


@case
def scaler_skips_on_all_ranks():
    model = made(method="wfbp", sparsifier="dgc", feedback="momentum")
    oracle = Oracle(model, "wfbp", density=0.05, sparsifier="dgc", feedback="momentum")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    sf.wrap(optimizer, scaler=scaler)
    for step, batch in enumerate(batches("mlp", dist.get_rank(), 4)):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        local = local_gradients(model, loss)
        before = sf.state_dict(model)
        bad = step == 1
        (scaler.scale(loss) * (float("inf") if bad and dist.get_rank() == 1 else 1)).backward()
        if bad:
            assert all(p.grad.isnan().all() for p in model.parameters())
            after = sf.state_dict(model)
            assert before["steps"] == after["steps"]
            for kind in ("residuals", "velocities"):
                for store, tensors in before[kind].items():
                    for name, tensor in tensors.items():
                        assert torch.equal(tensor, after[kind][store][name]), (kind, name)
        else:
            scale = scaler.get_scale()
            require_equal(model, oracle.step(local), scale=scale)
        scaler.step(optimizer)
        scaler.update()
        assert len(set(gathered(scaler.get_scale()))) == 1
    weights = gathered([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for w in weights for a, b in zip(w, weights[0]))


@case
def nan_raises_on_all_and_propagates():
    model = made()
    batch = batch_of_rank()
    loss_of(model, batch).backward()
    optimizer = sf.wrap(torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.zero_grad(set_to_none=False)
    bad = batch[0] * (float("nan") if dist.get_rank() == 1 else 1)
    raises(
        sparfuse.NumericError,
        r"rank 1: .*tensor \"4\.bias\"",
        lambda: loss_of(model, (bad, batch[1])).backward(),
    )
    raises(sparfuse.Error, "ended with an error", optimizer.step)
    model.zero_grad()
    loss_of(model, batch).backward()  # the next pass works as any other
    optimizer.step()
    sf.detach(model)
    model = made(nonfinite="propagate")
    loss_of(model, (bad, batch[1])).backward()
    assert model[0].weight.grad.isnan().all()


@case
def failed_backward_and_the_next_one():
    class Boom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("boom")

    model, oracle = made_with_oracle()
    first, second = batches("mlp", dist.get_rank(), 2)
    x = model[1](model[0](first[0]))
    raises(
        RuntimeError,
        "boom",
        lambda: F.cross_entropy(model[4](model[3](model[2](Boom.apply(x)))), first[1]).backward(),
    )
    for batch in (first, second):
        require_oracles_step(model, oracle, batch)


@case
def frozen_later():
    model, oracle = made_with_oracle()
    for step, batch in enumerate(batches("mlp", dist.get_rank(), 4)):
        model.zero_grad()
        model[0].weight.requires_grad_(step in (0, 3))
        loss = loss_of(model, batch)
        local = local_gradients(model, loss)
        loss.backward()
        averages = oracle.step({"0.weight": None, **local})
        require_equal(model, {name: averages[name] for name in local})
        assert (model[0].weight.grad is None) == (step in (1, 2))
    if dist.get_world_size() > 1:
        model.zero_grad()
        model[2].weight.requires_grad_(dist.get_rank() != 1)
        text = "rank 1: other parameters are frozen than on rank 0"
        refuses(text, loss_of(model, batch).backward)
        model[2].weight.requires_grad_(False)
        model.zero_grad()
        loss_of(model, batch).backward()


@case
def two_models_in_one_backward():
    one, two = made(), made()
    oracles = [Oracle(one, "wfbp", density=0.05), Oracle(two, "wfbp", density=0.05)]
    for batch in batches("mlp", dist.get_rank(), 2):
        one.zero_grad(), two.zero_grad()
        losses = [loss_of(one, batch), loss_of(two, batch)]
        locals_ = [local_gradients(one, losses[0]), local_gradients(two, losses[1])]
        if dist.get_rank() == 1:
            losses.reverse()
        (losses[0] + losses[1]).backward()
        require_equal(one, oracles[0].step(locals_[0]))
        require_equal(two, oracles[1].step(locals_[1]))


@case
def checkpoints():
    for reentrant in (False, True):
        model, oracle = made_with_oracle()
        inputs, targets = batch_of_rank()
        inputs.requires_grad_()
        local = local_gradients(model, loss_of(model, (inputs, targets)))
        hidden = checkpoint(model[:3], inputs, use_reentrant=reentrant)
        F.cross_entropy(model[4](model[3](hidden)), targets).backward()
        require_equal(model, oracle.step(local))
        model.zero_grad()
        if reentrant:
            out = checkpoint(model, inputs, use_reentrant=True)
            raises(
                sparfuse.UnsupportedError,
                "use_reentrant=False",
                lambda: F.cross_entropy(out, targets).backward(),
            )
        sf.detach(model)


@case
def backward_in_another_thread():
    model, oracle = made_with_oracle()
    loss = loss_of(model, batch_of_rank())
    local = local_gradients(model, loss)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    require_equal(model, oracle.step(local))


@case
def partial_backward_sends_zeros_for_the_rest():
    model, oracle = made_with_oracle()
    loss = loss_of(model, batch_of_rank())
    local = local_gradients(model, loss)
    loss.backward(inputs=[model[0].weight, model[4].weight])
    require_equal(
        model,
        oracle.step({n: g if n in ("0.weight", "4.weight") else None for n, g in local.items()}),
    )


@case
def compiled_module():
    model, oracle = made_with_oracle()
    compiled = torch.compile(model, backend="aot_eager")
    for batch in batches("mlp", dist.get_rank(), 2):
        model.zero_grad()
        local = local_gradients(model, loss_of(model, batch))
        loss_of(compiled, batch).backward()
        require_equal(model, oracle.step(local), exact=False)


@case
def tensors_that_are_lent():
    model = made()
    inputs = batch_of_rank()[0]
    lent = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}
    torch.func.functional_call(model, lent, inputs).sum().backward()
    assert all(tensor.grad is not None for tensor in lent.values())
    assert all(parameter.grad is None for parameter in model.parameters())


@case
def compiled_autograd():
    import torch._dynamo.compiled_autograd as compiled

    model = made()
    loss = loss_of(model, batch_of_rank())
    with compiled._enable(torch.compile(backend="eager")):
        raises(sparfuse.UnsupportedError, "0 bytes were sent", loss.backward)


@case
def copies_and_pickles():
    model = made()
    names = list(model.state_dict())
    assert names == list(mlp().state_dict())
    other = copy.deepcopy(model)
    batch = batch_of_rank()
    with other.no_sync():
        loss_of(other, batch).backward()  # nothing is sent, as with any model
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    sf.wrap(optimizer)
    loss_of(model, batch).backward()
    raises(sparfuse.Error, "of no distributed model", optimizer.step)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded[0].weight, model[0].weight)
    refuses("is not distributed", lambda: sf.report(loaded))


@case
def state_resumes_bit_for_bit():
    all_batches = batches("mlp", dist.get_rank(), 6)
    options = dict(sparsifier="dgc", feedback="momentum", clip=2.0)
    whole = made(**options)
    train(whole, all_batches[:3])
    saved = through_a_file(checkpoint_of(whole))
    train(whole, all_batches[3:])
    other = made(**options)
    resume(other, saved)
    train(other, all_batches[3:])
    require_alike(whole, other)
    # From twice as many ranks: the mean that is still to be applied stays.
    doubled = of_twice_as_many_ranks(saved["sparfuse"])
    sf.load_state_dict(other, doubled)
    now = sf.state_dict(other)["residuals"]
    for store, tensors in now.items():
        for name, tensor in tensors.items():
            mean = sum(s["residuals"][store][name].double() for s in doubled) / len(doubled)
            assert torch.equal(tensor, mean.float())
    refuses("it lacks rank", lambda: sf.load_state_dict(other, doubled[:-1]))
    one = saved["sparfuse"]
    as_arrays = {k: {n: t.numpy() for n, t in v.items()} for k, v in one["residuals"].items()}
    for text, wrong in {
        "state is an empty list": [],
        "state has steps = 'many'; expected a whole number": {**one, "steps": "many"},
        "is a ndarray; expected a tensor": {**one, "residuals": as_arrays},
    }.items():
        refuses(text, lambda wrong=wrong: sf.load_state_dict(other, wrong))


@case
def every_method_resumes_bit_for_bit():
    """Also what sparsifiers and collectives remember: phases, thresholds, factors, regions."""

    all_batches = batches("mlp", dist.get_rank(), 8)
    sparsifiers = ("dgc", "gaussiank", "mstopk", "redsync", "sidco")
    chosen = [dict(method=name) for name in live_methods()]
    chosen += [dict(method="wfbp", sparsifier=name) for name in sparsifiers]
    remember = set()
    for options in chosen:
        whole = made(density=0.1, **options)
        train(whole, all_batches[:3])
        saved = checkpoint_of(whole)
        if saved["sparfuse"]["remembered"]:
            remember.add(options["method"])
        train(whole, all_batches[3:])
        other = made(density=0.1, **options)
        resume(other, saved)
        again = sf.state_dict(other)
        for place, numbers in saved["sparfuse"]["remembered"].items():
            assert torch.equal(again["remembered"][place], numbers), (options, place)
        train(other, all_batches[3:])
        require_alike(whole, other, options)
        sf.detach(whole), sf.detach(other)
    assert {"oktopk", "powersgd", "adtopk-i", "adtopk-t", "wfbp"} <= remember, remember
    del saved["sparfuse"]["remembered"]  # a state of an earlier version
    model = made(density=0.1, **options)
    sf.load_state_dict(model, saved["sparfuse"])
    assert sf.state_dict(model)["remembered"] == {}


# A collective in Python, of which parts of the cases are made.
RING = """class Ring:
    payload = "sparse"
    def run(self, comm, mine):
        parts, give = [mine] * comm.size, mine
        for step in range(1, comm.size):
            sent = comm.send((comm.rank + 1) % comm.size, give)
            give = yield comm.receive((comm.rank - 1) % comm.size)
            parts[(comm.rank - step) % comm.size] = give
            yield sent
        return parts
"""
REMEMBERING = RING + """
import numpy, torch.distributed as dist
class Remembers:  # a number that changes what the part does in each step
    def __init__(self): self.count, self.seen = 0, {}
    def state_dict(self): return {"count": self.count, "seen": self.seen}
    def load_state_dict(self, state): self.count, self.seen = state["count"], state["seen"]
class Select(Remembers):
    def __init__(self):
        super().__init__()
        self.random = numpy.random.default_rng(3)
    def select(self, g, k, *, name):
        self.seen[name] = abs(g) + numpy.float32(0.5) * self.seen.get(name, numpy.float32(0))
        return numpy.argsort(self.seen[name] * self.random.random(g.size, dtype=numpy.float32))[-k:]
    def state_dict(self): return {**super().state_dict(), "random": self.random.bit_generator.state}
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.random.bit_generator.state = state["random"]
class Fade(Remembers):
    conserves = False
    def compensate(self, name, g, r):
        self.seen[name] = numpy.float32(0.9) * self.seen.get(name, numpy.float32(1))
        return g + self.seen[name] * r
    def keep(self, name, x, indices, r): r[:] = x; r[indices] = 0
class Late(Remembers):
    sparsified = "ahead"
    def step(self, e): self.count += 1
    def ready(self, e, tensor):
        e.apply(e.exchange([e.sparsify(tensor, density=0.05 * (1 + self.count % 3))]))
class CountingRing(Remembers, Ring):
    def run(self, comm, mine):
        self.count += 1
        return (yield from super().run(comm, mine))
class Scaled(Remembers):
    needs_feedback = False
    def encoded_bytes(self, n): return 4 * n
    def encode(self, x, random):
        self.count += 1
        return (x * numpy.float32(1 + self.count % 5)).view(numpy.uint8)
    def decode(self, b, n): return b.view(numpy.float32).copy()
class Generator(Remembers):
    def state_dict(self): return {"of": {"random": numpy.random.default_rng()}}
    def select(self, g, k): return numpy.arange(k)
class Odd:  # values of each kind, which come back as they were
    def __init__(self):
        self.kept = {"strided": numpy.arange(6).reshape(2, 3)[:, ::-1], "number": numpy.float32(0.1),
                     "nested": (1, [2.5, None, True, "x", b"y"]), "large": 2**100, "none": numpy.zeros(0),
                     "words": {3: numpy.full(2, 2**64 - 1, numpy.uint64)}, "complex": numpy.array([1 + 2j])}
    def select(self, g, k): return numpy.arange(k)
    def state_dict(self): return self.kept
    def load_state_dict(self, state):
        state, self.kept = self.kept, state
        for key in ("strided", "number", "none", "complex"):
            assert type(self.kept[key]) is type(state[key]) and self.kept[key].dtype == state[key].dtype, key
            numpy.testing.assert_array_equal(self.kept[key], state[key])
        numpy.testing.assert_array_equal(self.kept["words"][3], state["words"][3])
        assert self.kept["nested"] == state["nested"] and self.kept["large"] == 2**100
class Half:
    def select(self, g, k): return numpy.arange(k)
    def load_state_dict(self, state): pass
class Fails(Remembers):
    def state_dict(self):
        self.count += 1
        if dist.get_rank() == 1 and self.count > 4: raise RuntimeError("no state")
        return {}
    def select(self, g, k): return numpy.arange(k)
"""


@case
def parts_in_python_resume_bit_for_bit():
    part = write_parts(REMEMBERING)
    own = {"strategy": part("Late"), "planner": "layer-wise", "sparsifier": part("Select")}
    own |= {"feedback": part("Fade"), "collective": part("CountingRing")}
    all_batches = batches("mlp", dist.get_rank(), 7)
    for options, kinds in (
        ({"method": own}, {"strategy", "sparsifier", "feedback", "collective"}),
        ({"method": "qsgd", "payload_dense": part("Scaled")}, {"quantizer"}),
    ):
        whole = made(**options)
        train(whole, all_batches[:3])
        saved = through_a_file(checkpoint_of(whole))
        train(whole, all_batches[3:])
        assert set(saved["sparfuse"]["parts"]) == kinds, saved["sparfuse"]["parts"]
        other = made(**options)
        train(other, all_batches[5:])  # what it remembers by now is replaced
        resume(other, saved)
        again = sf.state_dict(other)["parts"]
        for kind, memory in saved["sparfuse"]["parts"].items():
            assert again[kind]["count"] == memory["count"], kind
            for name, tensor in memory["seen"].items():
                assert torch.equal(again[kind]["seen"][name], tensor), (kind, name)
        train(other, all_batches[3:])
        require_alike(whole, other, options)
        without = {**saved["sparfuse"], "parts": {}}
        if dist.get_rank() == 0:
            text = "the state has nothing that it remembered"
            refuses(text, lambda: sf.load_state_dict(other, without))
        # From twice as many ranks: the memories begin anew.
        sf.load_state_dict(other, of_twice_as_many_ranks(saved["sparfuse"]))
        for kind, memory in sf.state_dict(other)["parts"].items():
            assert memory["count"] == 0 and memory["seen"] == {}, (kind, memory)
        sf.detach(whole), sf.detach(other)
    model = made(sparsifier=part("Odd"))
    sf.load_state_dict(model, through_a_file(sf.state_dict(model)))
    sf.detach(model)
    model = made(method="wfbp")
    text = "what a quantizer in Python remembered, and the method has none"
    wrong = {**saved["sparfuse"], **{k: v for k, v in sf.state_dict(model).items() if k != "parts"}}
    refuses(text, lambda: sf.load_state_dict(model, wrong))


@case
def memories_of_steps_that_do_not_count():
    part = write_parts(REMEMBERING)
    batch, bad = batches("mlp", dist.get_rank(), 2)
    bad = (bad[0] * (float("nan") if dist.get_rank() == 0 else 1), bad[1])

    def seen(model):
        memory = sf.state_dict(model)["parts"]["sparsifier"]
        return {name: tensor.clone() for name, tensor in memory["seen"].items()}, memory["random"]

    for feedback in ("residual", "none"):
        for undo in (True, False):
            model = made(sparsifier=part("Select"), feedback=feedback, undo=undo)
            loss_of(model, batch).backward()
            before, random = seen(model)
            model.zero_grad()
            raises(sparfuse.NumericError, "rank 0", loss_of(model, bad).backward)
            after, random_after = seen(model)
            same = all(torch.equal(before[name], after[name]) for name in before)
            assert same == undo and (random == random_after) == undo
            sf.detach(model)
    text = r"""sparsifier: state_dict\(\) returned a dict with \['of'\]\['random'\], of type Generator"""
    model = made(sparsifier=part("Generator"))
    refuses(text, lambda: sf.state_dict(model))
    sf.detach(model)
    text = "mine.py:Half.*load_state_dict alone; expected both"
    refuses(text, lambda: made(sparsifier=part("Half")))
    if dist.get_world_size() > 1:
        model = made(sparsifier=part("Fails"))
        own = dist.get_rank() == 1
        text = r"state_dict\(\) raised RuntimeError: no state" if own else "rank 1 is lost"
        raises(sparfuse.Error, text, lambda: train(model, [batch] * 6))
        sf.detach(model)


@case
def averages_of_collectives_resume_bit_for_bit():
    all_batches = batches("mlp", dist.get_rank(), 5)
    for options, stores in (
        (dict(method="arc-topk", memory="ef21m", density=0.2), {"average", "sent", "sum"}),
        (dict(method="scape", density=0.2), {"moment"}),
    ):
        whole = made(**options)
        assert sf.state_dict(whole)["averages"] == {}
        train(whole, all_batches[:3])
        saved = checkpoint_of(whole)
        assert set(saved["sparfuse"]["averages"]) == stores
        train(whole, all_batches[3:])
        for lacks in (False, True):
            other = made(**options)
            other.load_state_dict(saved["model"])
            if lacks:  # a state of an earlier version: the method begins anew, with a dense step
                del saved["sparfuse"]["averages"]
            sf.load_state_dict(other, saved["sparfuse"])
            for store, tensors in sf.state_dict(other)["averages"].items():
                for name, tensor in tensors.items():
                    assert torch.equal(tensor, saved["sparfuse"]["averages"][store][name]), name
            assert (sf.state_dict(other)["averages"] == {}) == lacks
            train(other, all_batches[3:])
            same = all(torch.equal(a, b) for a, b in zip(whole.parameters(), other.parameters()))
            assert same != lacks
            sf.detach(other)
        sf.detach(whole)


@case
def report_and_trace():
    model = made()
    with tempfile.TemporaryDirectory() as folder, sf.trace(folder + "/step.json"):
        loss_of(model, batch_of_rank()).backward()
    report = sf.report()
    kept = sum(max(1, round(0.05 * p.numel())) for p in model.parameters())
    assert 0 < report["density"] < 0.08 and report["steps"] == 1, report
    if dist.get_world_size() > 1:
        assert report["sent_bytes"] > 0 and report["payload_bytes"] >= 8 * kept * 0.5, report
    assert "residual_norm" in str(report)
    for text, given in {
        "there is no folder /no-such": {"path": "/no-such/step.json"},
        "ranks has 9": {"path": "step.json", "ranks": (9,)},
        "steps = 0": {"path": "step.json", "steps": 0},
    }.items():
        refuses(text, sf.trace(**given).__enter__)


@case
def comm_hook_of_ddp():
    for given in (True, False):
        torch.manual_seed(0)
        ddp = nn.parallel.DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        plain = ddp.module
        ddp.register_comm_hook(
            *sf.comm_hook("wfbp", ddp if given else None, density=0.05, threads=1)
        )
        oracle = Oracle(plain, "wfbp", density=0.05)
        for batch in batches("mlp", dist.get_rank(), 4):
            ddp.zero_grad()
            reference = copy.deepcopy(plain)
            local = local_gradients(reference, loss_of(reference, batch))
            loss_of(ddp, batch).backward()
            require_equal(plain, oracle.step(local))


@case
def comm_hook_resumes_bit_for_bit():
    all_batches = batches("mlp", dist.get_rank(), 6)

    def started():
        torch.manual_seed(0)
        ddp = nn.parallel.DistributedDataParallel(mlp())
        options = {"density": 0.05, "threads": 1, "sparsifier": "sidco"}
        state, hook = sf.comm_hook("wfbp", ddp, **options)
        ddp.register_comm_hook(state, hook)
        return ddp, state

    whole, state = started()
    train(whole, all_batches[:3])
    saved = checkpoint_of(whole, state)
    train(whole, all_batches[3:])
    other, state = started()
    resume(other, saved, state)
    train(other, all_batches[3:])
    require_alike(whole, other)
    refuses("the first result of sf.comm_hook", lambda: sf.state_dict(other))
    report = sf.report(state)
    assert report["steps"] == 6 and report["total"]["sent_bytes"] > report["sent_bytes"], report
    sf.detach(state)
    raises(sparfuse.Error, "detach has ended", loss_of(other, all_batches[0]).backward)
    state, _ = sf.comm_hook("wfbp")
    refuses("the hook has no method yet", lambda: sf.state_dict(state))


@case
def comm_hook_that_gets_a_wrong_gradient():
    batch = batch_of_rank()
    last = dist.get_rank() == dist.get_world_size() - 1
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    ddp = nn.parallel.DistributedDataParallel(mlp())
    ddp.register_comm_hook(*sf.comm_hook("wfbp", ddp, density=0.05, threads=1, scaler=scaler))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    before = [p.detach().clone() for p in ddp.parameters()]
    scaler.scale(loss_of(ddp, batch) * (float("inf") if last else 1)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0, scaler.get_scale()
    assert all(torch.equal(p, then) for p, then in zip(ddp.parameters(), before))
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(ddp, batch).backward()
        with ddp.no_sync():
            optimizer.zero_grad()
            loss_of(ddp, batch).backward()
        loss_of(ddp, batch).backward()
    refuses("zero_grad", loss_of(ddp, batch).backward)
    # After an error DDP goes on, and nobody takes gradients of this rank alone for averages.
    ddp = nn.parallel.DistributedDataParallel(mlp())
    ddp.register_comm_hook(*sf.comm_hook("wfbp", ddp, density=0.05, threads=1))
    other = nn.parallel.DistributedDataParallel(mlp())
    other.register_comm_hook(*sf.comm_hook("wfbp", ddp, density=0.05, threads=1))
    refuses("the hook's model lacks", loss_of(other, batch).backward)
    oracle = Oracle(ddp.module, "wfbp", density=0.05)
    broken = loss_of(ddp, batch) * (float("nan") if last else 1)
    raises(sparfuse.NumericError, f"rank {dist.get_world_size() - 1}: .*nan", broken.backward)
    assert all(p.grad.isnan().all() for p in ddp.parameters())
    ddp.zero_grad()
    reference = copy.deepcopy(ddp.module)
    local = local_gradients(reference, loss_of(reference, batch))
    loss_of(ddp, batch).backward()
    require_equal(ddp.module, oracle.step(local))


@case
def local_steps():
    torch.manual_seed(dist.get_rank())
    model = mlp()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    every, rounds = 3, 2
    given = batches("mlp", dist.get_rank(), every * rounds)
    with sf.local_steps(
        model, inner, torch.optim.SGD(model.parameters(), lr=1.0), every=every, threads=1
    ):
        for number, batch in enumerate(given):
            inner.zero_grad()
            loss_of(model, batch).backward()
            if number % every == every - 1:
                # With rate 1 and no momentum, the outer step gives the mean of the ranks' parameters.
                copy_ = [p.detach() - 0.1 * p.grad for p in model.parameters()]
                means = [sum(each) / dist.get_world_size() for each in zip(*gathered(copy_))]
            inner.step()
        for parameter, mean in zip(model.parameters(), means):
            torch.testing.assert_close(parameter.detach(), mean, rtol=1e-4, atol=1e-6)
    with sf.local_steps(model, inner, every=every, threads=1) as same:
        inner.zero_grad()
        loss_of(same, given[0]).backward()
        inner.step()  # one of three: the end of the context exchanges it
        refuses("is in sf.local_steps", lambda: sf.distribute(same, "dense"))
    assert len({p.numpy().tobytes() for p in gathered(model[0].weight.detach())}) == 1
    foreign = torch.optim.SGD(mlp().parameters(), lr=0.1)
    refuses("inner has no parameter of the model",
            lambda: sf.local_steps(model, foreign, every=1).__enter__())
    for wrong, text in (
        (dict(every=4, fragments=3), "every to be a multiple of fragments"),
        (dict(every=4, fragments=2, delay=2), "delay to be below every / fragments"),
        (dict(every=4, delay=4, mix=0.5), "and 0 with delay = every"),
        (dict(every=4, mix=1.5), r"expected mix in \[0, 1\]"),
        (dict(every=9, fragments=9), "no more fragments than parameters"),
        (dict(every=2, fragments=[["0.weight"], ["nothing"]]), "has 'nothing', which is not in the model's trained"),
        (dict(every=2, fragments=[["0.weight"], ["0.bias"]]), "fragments lacks"),
        (dict(every=2, trigger="idle"), "averages arrive at set steps here"),
        (dict(every=2.5), "every = 2.5: expected a whole number"),
        (dict(every=2, mix="half"), "mix = 'half': expected a number"),
        (dict(every=2, fragments="all"), "fragments = 'all': expected a number"),
        (dict(every=2, fragments=None), "fragments = None: expected a number"),
    ):
        refuses(text, lambda wrong=wrong: sf.local_steps(model, inner, **wrong).__enter__())
    if dist.get_world_size() > 1:
        refuses("every: rank 0 has 2, rank 1 3",
                lambda: sf.local_steps(model, inner, every=2 + dist.get_rank()).__enter__())
        own = dist.get_rank() == 1  # one rank alone makes the mistake, and all raise
        for wrong, text in (
            (dict(fragments=3), "rank 1: local_steps: .* multiple of fragments"),
            (dict(trigger="idle"), "rank 1: local_steps: trigger = 'idle'"),
            (dict(inner=None), "rank 1: local_steps: inner is a NoneType; expected the optimizer"),
        ):
            given = {"inner": inner, "every": 2, **(wrong if own else {})}
            refuses(text, lambda given=given: sf.local_steps(model, **given).__enter__())
    with sf.local_steps(model, inner, every=1, method="dense", threads=1):
        text = "in another sf.local_steps"
        again = sf.local_steps(model, inner, every=1)
        refuses(text, again.__enter__)


class OuterOracle:
    """The outer rules of local steps in NumPy, float32, on the parameters of all ranks."""

    def __init__(self, start, every, fragments, delay, mix, rate, momentum):
        self.every, self.fragments, self.delay, self.mix = every, fragments, delay, mix
        self.rate, self.momentum = np.float32(rate), np.float32(momentum)
        self.anchor = {n: a.copy() for n, a in start.items()}
        self.outer = {n: np.zeros_like(a) for n, a in start.items()}
        self.sent = {}

    def due(self, step):
        period = self.every // len(self.fragments)
        return None if step % period else (step // period - 1) % len(self.fragments)

    def apply(self, ranks, fragment, average, mix):
        for name in self.fragments[fragment]:
            b = self.outer[name] = self.momentum * self.outer[name] + average[name]
            a = self.anchor[name] = self.anchor[name] - self.rate * (average[name] + self.momentum * b)
            for w in ranks:
                w[name] = a + np.float32(mix) * (w[name] - a) if mix else a.copy()

    def mean(self, ranks, fragment):
        return {
            n: sum(self.anchor[n] - w[n] for w in ranks) / np.float32(len(ranks))
            for n in self.fragments[fragment]
        }

    def after(self, step, ranks):
        lags = self.delay == self.every
        sent = self.due(step + (0 if lags else self.delay))
        received = self.due(step)
        fresh = None if sent is None else self.mean(ranks, sent)
        if lags:
            if received is not None:
                if 0 in self.sent:
                    self.apply(ranks, 0, self.sent.pop(0), 0)
                for w in ranks:
                    w.update({n: a.copy() for n, a in self.anchor.items()})
                self.sent[0] = fresh
            return
        if sent is not None:
            self.sent[sent] = fresh
        if received is not None:
            self.apply(ranks, received, self.sent.pop(received), self.mix)


def names_of(model, fragments):
    """The runs of about equal sizes that planner "fragments" makes."""
    layout = [(n, tuple(p.shape)) for n, p in model.named_parameters()][::-1]
    units = sparfuse.Method("local-sgd", 1, layout, every=fragments, fragments=fragments).plan
    return [[tensor["name"] for tensor in unit["tensors"]] for unit in units]


def streams(every, fragments, delay, mix, named=None):
    torch.manual_seed(0)
    model = mlp()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    outer = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.9, nesterov=True)
    given = batches("mlp", dist.get_rank(), 2 * every + 1)
    runs = named or names_of(model, fragments)
    start = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    oracle = OuterOracle(start, every, runs, delay, mix, 0.4, 0.9)
    apart = False
    with sf.local_steps(
        model, inner, outer, every=every, fragments=named or fragments, delay=delay, mix=mix, threads=1
    ):
        for number, batch in enumerate(given):
            inner.zero_grad()
            loss_of(model, batch).backward()
            stepped = {
                n: (p.detach() - 0.1 * p.grad).numpy().copy() for n, p in model.named_parameters()
            }
            before = [p.grad.clone() for p in model.parameters()]
            inner.step()
            ranks = gathered(stepped)
            oracle.after(number + 1, ranks)
            for name, parameter in model.named_parameters():
                expected = torch.from_numpy(ranks[dist.get_rank()][name])
                torch.testing.assert_close(
                    parameter.detach(), expected, rtol=1e-4, atol=2e-6, msg=f"{name}, step {number + 1}"
                )
            assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before))
            found = gathered(model[0].weight.detach().clone())
            apart |= not all(torch.equal(found[0], other) for other in found)
        state = sf.state_dict(model)
        assert [sorted(names) for names in runs] == [sorted(names) for names in state["fragments"]]
        for name, anchor in oracle.anchor.items():
            torch.testing.assert_close(
                state["anchors"][name], torch.from_numpy(anchor), rtol=1e-4, atol=2e-6
            )
    assert apart == (dist.get_world_size() > 1)
    for name, parameter in model.named_parameters():
        found = gathered(parameter.detach().clone())
        assert all(torch.equal(found[0], other) for other in found), name


@case
def local_steps_of_copies_and_of_other_parameters():
    def within(model, inner):
        return sf.local_steps(model, inner, every=2, method="dense", threads=1)

    def replace(model):
        model[4].bias = nn.Parameter(torch.zeros(10))

    model = mlp()
    with within(model, torch.optim.SGD(model.parameters(), lr=0.1)):
        other = copy.deepcopy(model)
        torch.save(model, io.BytesIO())
    refuses("not distributed", lambda: sf.state_dict(other))
    inner = torch.optim.SGD(other.parameters(), lr=0.1)
    with within(other, inner):
        assert sf.state_dict(other)["made"] == 0
        assert sf.report(other)["steps"] == 0
        inner.step()
        inner.step()
        assert sf.report(other)["steps"] == 1
    refused = sf.local_steps(other, inner, torch.optim.SGD(model.parameters(), lr=1.0), every=2)
    refuses('outer lacks "4.bias"', refused.__enter__)
    for name, spoil in {
        "5.bias": lambda model: model.add_module("5", nn.Linear(10, 10)),
        "4.bias": replace,
        "0.weight": lambda model: model[0].weight.requires_grad_(True),
    }.items():
        model = mlp()
        model[0].weight.requires_grad_(name != "0.weight")
        inner = torch.optim.SGD(model.parameters(), lr=0.1)

        def go(model=model, inner=inner, spoil=spoil):
            with within(model, inner):
                spoil(model)
                inner.step()
                inner.step()

        refuses(f'"{name}" was added, replaced or thawed within', go)


@case
def local_steps_in_fragments_beside_steps():
    streams(every=4, fragments=2, delay=0, mix=0.0)
    streams(every=4, fragments=2, delay=1, mix=0.5)
    streams(every=3, fragments=1, delay=2, mix=1.0)


@case
def local_steps_that_lag_and_named_fragments():
    streams(every=2, fragments=1, delay=2, mix=0.0)
    named = [["4.weight", "0.bias"], ["0.weight", "2.weight", "2.bias", "4.bias"]]
    streams(every=4, fragments=2, delay=1, mix=0.25, named=named)


@case
def local_steps_keep_reset_or_average_the_inner_state():
    for inner_state in ("keep", "reset", "average"):
        torch.manual_seed(0)
        model = mlp()
        inner = torch.optim.AdamW(model.parameters(), lr=0.01)
        given = batches("mlp", dist.get_rank(), 4)
        options = {"every": 4, "fragments": 2, "threads": 1, "inner_state": inner_state}
        with sf.local_steps(model, inner, **options):
            first = set(sf.state_dict(model)["fragments"][0])
            for number, batch in enumerate(given[:2]):
                inner.zero_grad()
                loss_of(model, batch).backward()
                if number == 1:  # what a step would leave without an exchange
                    alone = mlp()
                    alone.load_state_dict(model.state_dict())
                    other = torch.optim.AdamW(alone.parameters(), lr=0.01)
                    other.load_state_dict(copy.deepcopy(inner.state_dict()))
                    for p, q in zip(alone.parameters(), model.parameters()):
                        p.grad = q.grad.clone()
                    other.step()
                inner.step()
            for (name, parameter), own in zip(model.named_parameters(), alone.parameters()):
                left = other.state[own]
                if name in first and inner_state == "reset":
                    assert parameter not in inner.state
                    continue
                found = inner.state[parameter]
                assert int(found["step"]) == 2
                for key in ("exp_avg", "exp_avg_sq"):
                    if name in first and inner_state == "average":
                        mean = sum(gathered(left[key])) / dist.get_world_size()
                        torch.testing.assert_close(found[key], mean, rtol=1e-5, atol=1e-9)
                    else:
                        assert torch.equal(found[key], left[key]), (name, key)
            train(model, given[2:], inner)  # it goes on
    refuses('expected "keep", "reset" or "average"',
            lambda: sf.local_steps(model, inner, every=2, inner_state="drop").__enter__())


@case
def local_steps_resume_in_the_middle_of_a_window():
    resumes_in_the_middle(dict(every=4), 6, 2)
    resumes_in_the_middle(dict(every=4, fragments=2, delay=1, mix=0.5), 7, 3)
    resumes_in_the_middle(dict(every=4, fragments=2, delay=1, mix=0.5, sparsifier="sidco"), 7, 3)
    part = write_parts(REMEMBERING)("Select")
    resumes_in_the_middle(dict(every=4, fragments=2, delay=1, mix=0.5, sparsifier=part), 7, 3)
    resumes_in_the_middle(dict(every=4, delay=4), 6, 2)
    for inner_state in ("reset", "average"):  # of a momentum, which the optimizer saves
        fragments = dict(every=4, fragments=2, delay=1, mix=0.5, inner_state=inner_state)
        resumes_in_the_middle(fragments, 7, 3, momentum=0.9)


def resumes_in_the_middle(windows, saved_after, made, momentum=0.0):
    given = batches("mlp", dist.get_rank(), 12)

    def within(model, inner, **changes):
        options = {"method": "wfbp", "density": 0.25, "threads": 1, **windows, **changes}
        return sf.local_steps(model, inner, **options)

    torch.manual_seed(0)
    whole = mlp()
    inner = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=momentum)
    with within(whole, inner):
        train(whole, given[:saved_after], inner)
        saved = through_a_file(sf.state_dict(whole))
        kept = copy.deepcopy(inner.state_dict())
        train(whole, given[saved_after:], inner)
    assert saved["made"] == made and saved["steps"] == (2 if windows.get("fragments") else 1)
    assert bool(saved["under_way"]) == bool(windows.get("delay"))
    moved = [not torch.equal(saved["anchors"][n], p) for n, p in saved["parameters"].items()]
    assert any(moved)
    torch.manual_seed(1 + dist.get_rank())
    other = mlp()
    inner = torch.optim.SGD(other.parameters(), lr=0.1, momentum=momentum)
    inner.load_state_dict(kept)
    with within(other, inner):
        sf.load_state_dict(other, saved)
        train(other, given[saved_after:], inner)
        less = {key: value for key, value in saved.items() if key != "anchors"}
        refuses('no "anchors"', lambda: sf.load_state_dict(other, less))
        more = {**saved, "world_size": 1 + saved["world_size"]}
        refuses("state lacks rank", lambda: sf.load_state_dict(other, more))
    require_alike(whole, other)
    with within(other, inner, every=8, delay=0):
        refuses("windows of 4", lambda: sf.load_state_dict(other, saved))
    with within(other, inner, fragments=4, delay=0):
        refuses("they have other", lambda: sf.load_state_dict(other, saved))
    refuses("not distributed", lambda: sf.state_dict(other))


@case
def replicas_of_shards():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("replica", "shard"))
    torch.manual_seed(0)
    whole, sharded = mlp(), None
    sharded = copy.deepcopy(whole)
    fully_shard(sharded[0], mesh=mesh["shard"])
    fully_shard(sharded, mesh=mesh["shard"])
    refuses("group is None", lambda: sf.compress_replicas(sharded, None))
    refuses("not sharded by fully_shard", lambda: sf.compress_replicas(whole, mesh["replica"].get_group()))
    sf.compress_replicas(sharded, mesh["replica"].get_group(), "wfbp", density=1.0, threads=1)
    for batch in batches("mlp", dist.get_rank(), 3):
        whole.zero_grad()
        sharded.zero_grad()
        loss_of(whole, batch).backward()
        loss_of(sharded, batch).backward()
        for (name, p), q in zip(whole.named_parameters(), sharded.parameters()):
            expected = sum(gathered(p.grad)) / ranks
            assert torch.allclose(q.grad.to_local(), expected, atol=1e-6), name
    sf.detach(sharded)

    def started():
        model = copy.deepcopy(whole)
        fully_shard(model[0], mesh=mesh["shard"])
        fully_shard(model, mesh=mesh["shard"])
        group = mesh["replica"].get_group()
        return sf.compress_replicas(model, group, "wfbp", density=0.05, threads=1)

    given = batches("mlp", dist.get_rank(), 5)
    uninterrupted = started()
    refuses("no gradient has come", lambda: sf.state_dict(uninterrupted))
    train(uninterrupted, given[:3])
    saved = checkpoint_of(uninterrupted)
    train(uninterrupted, given[3:])
    resumed = started()
    resumed.load_state_dict(saved["model"])
    for broken in ({}, {"groups": {"1": {}}}):
        refuses("state has", lambda: sf.load_state_dict(resumed, broken))
    sf.load_state_dict(resumed, saved["sparfuse"])
    train(resumed, given[3:])
    for p, q in zip(uninterrupted.parameters(), resumed.parameters()):
        assert torch.equal(p.to_local(), q.to_local())
    report = sf.report(resumed)
    assert report["steps"] == 5 and report["residual_norm"] > 0 and "|" in report["plan"], report
    refuses("compress_replicas", sf.trace("a", model=resumed).__enter__)
    sf.detach(resumed)
    sf.detach(uninterrupted)


@case
def part_in_python():
    part = write_parts(
        "class Pairs:\n"
        "    def plan(self, layout, given):\n"
        "        return [2] * (len(layout) // 2) + [1] * (len(layout) % 2)\n"
        "class Fade:\n"
        "    def compensate(self, name, g, r): return g + r\n"
        "    def keep(self, name, x, indices, r): r[:] = x; r[indices] = 0\n"
    )
    path = part("")[len("python:") : -1]
    options = {"planner": f"python:{path}:Pairs", "feedback": f"python:{path}:Fade", "density": 0.05}
    equals_method("mlp", {"method": "wfbp", **options})
    model = made(method="wfbp", **options)
    loss_of(model, batch_of_rank()).backward()
    assert sf.report(model)["python_seconds"] > 0
    sf.detach(model)
    dist.barrier()
    if dist.get_rank() == 0:
        with open(path, "a") as file:
            file.write("# edited\n")
    own = path if dist.get_rank() == 0 else path + ".other.py"
    if dist.get_rank() == 1:
        with open(own, "w") as file:
            file.write("class Pairs:\n    def plan(self, layout, given): return [len(layout)]\n")
    dist.barrier()
    if dist.get_world_size() > 1:
        refuses("expected the same model, method, options and versions on all ranks",
                lambda: made(method="wfbp", planner=f"python:{own}:Pairs"))
    refuses("absent.py is not there", lambda: made(method="wfbp", planner="python:absent.py:Pairs"))


BAD_PARTS = """
import os, time, torch.distributed as dist
class Planner:
    def plan(self, layout, given):
        if dist.get_rank() == 1: raise RuntimeError("no plan here")
        return [len(layout)]
class Differs:
    def plan(self, layout, given):
        return [len(layout)] if dist.get_rank() == 1 else [1, len(layout) - 1]
class Constructor:
    def __init__(self): raise RuntimeError("no object here")
    def select(self, g, k): return range(k)
class Late:
    sparsified = "ahead"
    calls = 0
    def ready(self, e, tensor):
        Late.calls += 1
        if dist.get_rank() == 1 and Late.calls > len(e.layout): self.end_it()
        e.apply(e.exchange([e.sparsify(tensor)]))
class Raises(Late):
    def end_it(self): raise RuntimeError("no good")
""" + RING + """class Stuck(Ring):
    def run(self, comm, mine):
        if os.environ.get("STUCK") == str(comm.rank): time.sleep(1000)
        return (yield from super().run(comm, mine))
"""


def write_parts(text):
    folder = gathered(tempfile.mkdtemp())[0]
    path = os.path.join(folder, "mine.py")
    if dist.get_rank() == 0:
        with open(path, "w") as file:
            file.write(text)
    dist.barrier()
    return lambda name: f"python:{path}:{name}"


@case
def bad_parts_are_named_on_all_ranks():
    part = write_parts(BAD_PARTS)
    refuses(r"rank 1: planner .*mine.py:Planner.*RuntimeError: no plan here \(.*mine.py, line 5\)",
            lambda: made(method="wfbp", planner=part("Planner")))
    refuses(r'plan: rank 0 has "1,5", rank 1 "6"', lambda: made(method="wfbp", planner=part("Differs")))


def part_that_ends_midway(kind, name, own, theirs):
    parts = {"planner": "layer-wise", "sparsifier": "topk", "feedback": "residual"}
    parts |= {"strategy": "ahead", "collective": "sparse-allgather", kind: write_parts(BAD_PARTS)(name)}
    model = sf.distribute(mlp(), parts, density=0.05, threads=1, deadline_seconds=2)
    batch = batch_of_rank()
    loss_of(model, batch).backward()
    model.zero_grad()
    os.environ["STUCK"] = "1"
    said = raises(sparfuse.Error, "", loss_of(model, batch).backward)
    del os.environ["STUCK"]
    assert re.search(own if dist.get_rank() == 1 else theirs, said), said
    dist.barrier()  # a rank that goes on after its failure leaves nobody waiting
    raises(sparfuse.Error, "failed", loss_of(model, batch).backward)
    sf.detach(model)


@case
def part_that_raises_on_one_rank():
    part_that_ends_midway("strategy", "Raises", r"mine.py:Raises.*RuntimeError: no good", "rank 1 is lost: .*no good")


@case
def part_that_hangs_on_one_rank():
    own = r"mine.py:Stuck: run\(comm, mine\) on rank 1 has not returned for"
    part_that_ends_midway("collective", "Stuck", own, "rank 1 does not answer")


@case
def detached_on_one_rank():
    model = made()
    last = dist.get_world_size() - 1
    first, second = batches("mlp", dist.get_rank(), 2)
    loss_of(model, first).backward()
    model.zero_grad()
    if dist.get_rank() != last:  # all name it, also those that wait for a rank that waits for it
        raises(sparfuse.Error, f"rank {last} is lost", loss_of(model, second).backward)
    sf.detach(model)


@case
def group_of_some_ranks():
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    model = made(group=alone[dist.get_rank()], method="dense")
    loss = loss_of(model, batch_of_rank())
    local = local_gradients(model, loss)
    with tempfile.TemporaryDirectory() as folder:
        with sf.trace(Path(folder) / "own.json"):  # by the group's rank 0, which each process is
            loss.backward()
        assert json.loads((Path(folder) / "own.json").read_text())["traceEvents"]
    require_equal(model, {name: gradient.numpy() for name, gradient in local.items()})


@case
def verified_steps():
    for method in ("safusion", "dense", "gtopk"):
        model = made(method=method, verify=True)
        for batch in batches("mlp", dist.get_rank(), 2):
            model.zero_grad()
            loss_of(model, batch).backward()
        sf.detach(model)


@case
def advice_without_a_training():
    advice = sf.advise(
        mlp(),
        torch.randn(8, 24),
        link="0.001Gbit/s:100us",
        world_size=8,
        methods=["dense", "wfbp", "safusion"],
        repeats=3,
    )
    assert advice.best != "dense", advice
    part = write_parts(
        "import time\n"
        "class Slow:\n"
        "    def select(self, g, k): time.sleep(0.01); return range(k)\n"
    )
    method = {"strategy": "ahead", "planner": "layer-wise", "sparsifier": part("Slow")}
    method |= {"feedback": "residual", "collective": "sparse-allgather"}
    settings = {"link": "1Gbit/s:100us", "world_size": 8, "repeats": 1}
    slow = sf.advise(mlp(), torch.randn(8, 24), methods=[method, "wfbp"], **settings).rows[1]
    assert slow["decides"] == "selecting (selection in Python)" and slow["step_seconds"] > 0.05, slow
    for text, given in {
        "methods = 'dense'": {"methods": "dense"},
        "repeats = 0": {"repeats": 0},
        "the loss is no single number": {"loss": lambda out: out},
    }.items():
        refuses(text, lambda given=given: sf.advise(mlp(), torch.randn(8, 24), **{**settings, **given}))
    assert all(r["low_seconds"] <= r["step_seconds"] <= r["high_seconds"] for r in advice.rows)
    assert "modelled" in str(advice)
    refuses('link = "fast": expected "1Gbit/s:100us"',
            lambda: sf.advise(mlp(), torch.randn(8, 24), link="fast", world_size=2))


@case
def detached_many_times():
    model = mlp()

    def counts():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    for step in range(30):
        sf.distribute(model, "wfbp", threads=1)
        if step % 10 == 0:
            loss_of(model, batch_of_rank()).backward()
        sf.detach(model)
        model.zero_grad()
        if step == 4:
            before = counts()
    after = counts()
    assert after[0] <= before[0] + 2 and after[1] <= before[1] + 1, (before, after)


# --- Refusals ---


class Buffers(nn.Module):
    """A linear layer, and `tensors` as buffers."""

    def __init__(self, frozen=None, **tensors):
        super().__init__()
        self.layer = nn.Linear(24, 10)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        if frozen is not None:
            self.frozen = nn.Parameter(torch.zeros(frozen), requires_grad=False)

    def forward(self, x):
        return self.layer(x)


@case
def buffers_of_all_kinds_begin_as_rank_0s():
    own = float(dist.get_rank())
    model = Buffers(
        flags=torch.tensor([own > 0, True]),
        count=torch.tensor(int(own)),
        pair=torch.full((2,), complex(own, 1)),
        wide=torch.full((2,), own, dtype=torch.float64),
        turned=torch.full((3, 4), own).T,
        expanded=torch.full((1,), own).expand(5),
        rows=torch.full((3, 1), own).expand(3, 5),
        graph=torch.sparse_coo_tensor([[0] * (dist.get_rank() + 1)], [1.0] * (dist.get_rank() + 1), (4,)),
    )
    sf.distribute(model, "wfbp", density=0.05, threads=1)
    for name, buffer in model.named_buffers():
        assert not buffer.to_dense().any() or name in ("flags", "pair", "graph"), (name, buffer)
        found = gathered(buffer.to_dense().clone())
        assert all(torch.equal(found[0], other) for other in found), name
    oracle = Oracle(model, "wfbp", density=0.05)
    require_oracles_step(model, oracle, batch_of_rank())


@case
def untrained_tensors_that_differ():
    if dist.get_world_size() == 1:
        return
    last = dist.get_rank() == dist.get_world_size() - 1
    for text, make in {
        r"rank 0 has .torch.float32 \[3\]., rank [1-9] .torch.float32 \[4\]": lambda: Buffers(b=torch.zeros(3 + last)),
        r"rank 0 has .torch.float32 \[2\]., rank [1-9] .torch.int64 \[2\]": lambda: Buffers(
            b=torch.zeros(2, dtype=torch.int64 if last else torch.float32)
        ),
        r"""rank 0 has None, rank [1-9] "torch.float32 \[2\]""": lambda: Buffers(**({"b": torch.zeros(2)} if last else {})),
        r'"frozen": rank 0 has .torch.float32 \[6\]., rank [1-9] ': lambda: Buffers(7 if last else 6),
    }.items():
        refuses(text, lambda make=make: sf.distribute(make(), "wfbp", threads=1))
    inner = lambda model: torch.optim.SGD(model.parameters(), lr=0.1)
    model = Buffers(b=torch.zeros(3 + last))
    rounds = sf.local_steps(model, inner(model), every=1, threads=1)
    refuses('"b": rank 0 has', rounds.__enter__)


@case
def models_that_are_dropped_are_closed():
    threads = lambda: len(os.listdir("/proc/self/task"))
    kept = made()
    before = threads(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        dropped = made()
        loss_of(dropped, batch_of_rank()).backward()
        del dropped
        gc.collect()
        with sf.no_sync():  # of the only model that there is
            loss_of(kept, batch_of_rank()).backward()
        dist.barrier()
    for _ in range(2):  # a hook's state closes with its last reference
        ddp = nn.parallel.DistributedDataParallel(mlp())
        ddp.register_comm_hook(*sf.comm_hook("wfbp", ddp, density=0.05, threads=1))
        loss_of(ddp, batch_of_rank()).backward()
        del ddp
        gc.collect()
        dist.barrier()
    assert (threads(), len(os.listdir("/proc/self/fd"))) == before


@case
def refusals_at_the_start():
    double = mlp().double()
    refuses("torch.float64; expected float32", lambda: sf.distribute(double, "wfbp"))
    ddp = nn.parallel.DistributedDataParallel(mlp())
    refuses("register_comm_hook", lambda: sf.distribute(ddp, "wfbp"))
    refuses("unknown method", lambda: sf.distribute(mlp(), "safusionn"))
    complex_ = mlp()
    complex_[0].weight = nn.Parameter(complex_[0].weight.to(torch.complex64))
    refuses("complex64; expected float32", lambda: sf.distribute(complex_))
    refuses("no parameter", lambda: sf.distribute(nn.ReLU(), "wfbp"))
    refuses('expected "raise"', lambda: sf.distribute(mlp(), "wfbp", nonfinite="no"))
    from torch.distributed._composable.replicate import replicate
    from torch.distributed._composable.replicate_with_fsdp import replicate as replicate_with_fsdp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sharded = mlp()
    sharded[0].weight = nn.Parameter(distribute_tensor(sharded[0].weight.detach(), mesh))
    refuses('"0.weight" is a DTensor', lambda: sf.distribute(sharded, "wfbp"))
    fully_shard(sharded := mlp(), mesh=mesh)
    refuses("sharded by FSDP", lambda: sf.distribute(sharded, "wfbp"))
    for replicated in (replicate(mlp()), replicate_with_fsdp(mlp(), mesh=mesh)):
        refuses("averages by itself, through replicate", lambda: sf.distribute(replicated, "wfbp"))
    model = made()
    refuses("distributed already", lambda: sf.distribute(model, "wfbp"))
    sf.detach(model)
    refuses("call sf.distribute", lambda: sf.detach(model))
    sf.distribute(whole := mlp(), "wfbp", threads=1)
    refuses('"weight" belongs to a distributed model', lambda: sf.distribute(whole[0], "wfbp"))
    sf.detach(whole)
    refuses("has no shape yet; run one forward pass", lambda: sf.distribute(nn.LazyLinear(4), "wfbp"))
    if dist.get_world_size() == 1:
        return
    rank = dist.get_rank()
    refuses(r"density: rank 0 has 0.01, rank 1 0.02",
            lambda: sf.distribute(mlp(), "wfbp", density=0.02 if rank == 1 else 0.01))
    refuses(r'method: rank 0 has "wfbp", rank 1 "safusion"',
            lambda: sf.distribute(mlp(), "safusion" if rank == 1 else "wfbp"))
    refuses("layout: rank 0 has", lambda: sf.distribute(Conv() if rank == 1 else mlp(), "wfbp"))
    refuses(r"rank 1: .*float64", lambda: sf.distribute(double if rank == 1 else mlp(), "wfbp"))
    for text, wrong in {
        "TypeError: density = 'much': expected a number": {"density": "much"},
        "threads = 0: expected 1 to 1024": {"threads": 0},
        'nonfinite = "no": expected "raise"': {"nonfinite": "no"},
        "undo = 'no': expected True or False": {"undo": "no"},
        "TypeError: method = 5: expected a name, the path": {"method": 5},
        ".*RuntimeError: no object here": {"sparsifier": write_parts(BAD_PARTS)("Constructor")},
    }.items():
        given = wrong if rank == 1 else {}
        refuses(f"rank 1: {text}", lambda given=given: sf.distribute(mlp(), **{"method": "wfbp", **given}))
    for name, wrong in {"nonfinite": "propagate", "undo": False}.items():
        given = {name: wrong} if rank == 1 else {}
        refuses(f"{name}: rank 0 has .*, rank 1", lambda given=given: sf.distribute(mlp(), "wfbp", **given))
    group = dist.new_group([0])
    if rank == 0:
        sf.detach(sf.distribute(mlp(), "wfbp", group=group))
    else:
        refuses("is not in `group`", lambda: sf.distribute(mlp(), "wfbp", group=group))


@case
def methods_files_that_differ():
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # each rank has one of its own, with a file of the same name
        sparsifier = "randomk" if dist.get_rank() == 1 else "topk"
        with open("mine.toml", "w") as file:
            file.write(
                f'strategy = "ahead"\nplanner = "layer-wise"\nsparsifier = "{sparsifier}"\n'
                'feedback = "residual"\ncollective = "sparse-allgather"\n'
            )
        refuses("""sparsifier of the method's file: rank 0 has "topk", rank 1 "randomk\"""",
                lambda: sf.distribute(mlp(), "mine.toml"))
        os.chdir(here)


class Scattered(torch.autograd.Function):
    """Has a DTensor as its gradient."""

    @staticmethod
    def forward(_context, x):
        return x.clone()

    @staticmethod
    def backward(_context, gradient):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, distribute_tensor

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        return distribute_tensor(gradient, mesh, [Replicate()])


@case
def refusals_of_a_step():
    inputs, targets = batch_of_rank()
    last = dist.get_world_size() - 1  # one rank alone makes the mistake, and all raise

    def check(text, spoil, model=None, loss=None):
        model = model or made()
        if dist.get_rank() == last:
            spoil(model)
        everybody = lambda: (loss or (lambda m: loss_of(m, (inputs, targets))))(model).backward()
        refuses(text, everybody)
        sf.detach(model)

    check(
        '"0.extra.weight" came after sf.distribute', lambda m: m[0].add_module("extra", nn.Linear(2, 2))
    )

    def replace(m):
        m[4].bias = nn.Parameter(torch.zeros(10))

    check('"4.bias" was replaced', replace)

    def assign(m):  # replaces all parameters: no hook is left
        m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True)

    check('"0.weight" was replaced', assign)
    model = mlp()
    model[0].bias.requires_grad_(False)
    sf.distribute(model, "wfbp", threads=1)
    check('"0.bias" was frozen at sf.distribute', lambda m: m[0].bias.requires_grad_(True), model)
    check(
        "was of torch.float32 on cpu",
        lambda m: m.to(torch.bfloat16),
        loss=lambda m: F.cross_entropy(m(inputs.to(m[0].weight.dtype)).float(), targets),
    )

    def drop(m):
        m[0].weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))

    check("is gone at the end of backward", drop)
    model = made()
    ddp = nn.parallel.DistributedDataParallel(model)
    text = "DistributedDataParallel wraps the model since sf.distribute.*sf.comm_hook"
    refuses(text, lambda: loss_of(ddp, (inputs, targets)))
    with torch.no_grad():
        ddp(inputs)
    sf.detach(model)
    loss_of(ddp, (inputs, targets)).backward()
    stepping = mlp()
    drop(stepping)
    check("is gone when it is final", drop, sf.distribute(stepping, "wfbp", threads=1))
    model = sf.distribute(
        nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2)), "wfbp", threads=1
    )
    refuses("sparse=False", lambda: model(torch.arange(3)).sum().backward())
    sf.detach(model)
    model = made()
    scattered = Scattered.apply(model[0].weight)
    hidden = F.linear(inputs, scattered, model[0].bias)
    loss = F.cross_entropy(model[1:](hidden), targets)
    text = '"0.weight" is a DTensor, which has no memory of its own; .*full_tensor'
    refuses(text, loss.backward)
    sf.detach(model)
    model = made()
    refuses("create_graph", lambda: loss_of(model, (inputs, targets)).backward(create_graph=True))
    sf.detach(model)
    model = made()
    loss_of(model, (inputs, targets)).backward()
    refuses("zero_grad", lambda: loss_of(model, (inputs, targets)).backward())
    model.zero_grad()
    loss_of(model, (inputs, targets)).backward()
    sf.detach(model)
    model = made()
    optimizer = sf.wrap(torch.optim.SGD(model.parameters(), lr=0.1))
    with model.no_sync():
        loss_of(model, (inputs, targets)).backward()
    raises(sparfuse.Error, "within no_sync", optimizer.step)
    model.zero_grad()
    loss_of(model, (inputs, targets)).backward()
    optimizer.step()
    optimizer.zero_grad()
    for parameter, gradient in zip(
        model.parameters(),
        torch.autograd.grad(loss_of(model, (inputs, targets)), list(model.parameters())),
    ):
        parameter.grad = gradient
    raises(sparfuse.Error, "no backward.. made averages since the last step", optimizer.step)


class Branches(nn.Module):
    """The second branch has the smallest parameter; an empty one is trained as well."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(24, 10), nn.Linear(24, 1)
        self.empty = nn.Parameter(torch.empty(0))

    def forward(self, x, branch=0):
        return (self.second if branch else self.first)(x) + self.empty.sum()


@case
def averages_that_were_not_cleared():
    inputs = batch_of_rank()[0]
    model = sf.distribute(Branches(), "wfbp", density=0.05, threads=1)
    for clip in (False, True):
        model(inputs).sum().backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        refuses("zero_grad", lambda: model(inputs).sum().backward())
        model.zero_grad(set_to_none=clip)
    model(inputs, 1).sum().backward()


# --- Cases that end their processes ---


def long_training(model):
    for batch in batches("mlp", dist.get_rank(), 10_000):
        model.zero_grad()
        loss_of(model, batch).backward()


@case
def killed_rank():
    model = made()
    victim = dist.get_world_size() - 1
    pids = gathered(os.getpid())
    if dist.get_rank() == 0:
        threading.Timer(0.5, os.kill, (pids[victim], signal.SIGKILL)).start()
    try:
        long_training(model)
    except sparfuse.Error as error:
        assert str(error) == f"rank {victim} is lost", error
        raises(
            sparfuse.Error, "is lost", lambda: loss_of(model, batches("mlp", 0, 1)[0]).backward()
        )
        sf.detach(model)
    else:
        raise AssertionError("training went on without a rank")


@case
def killed_before_it_connects():
    """All have exchanged addresses when a rank is killed; the others do not wait for the deadline."""
    victim = dist.get_world_size() - 1
    if dist.get_rank() == victim:
        sf._start._MethodOfRank = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    text = f"rank {victim} at .* is lost before it has connected to rank {dist.get_rank()} at "
    raises(sparfuse.Error, text, lambda: sf.distribute(mlp(), "wfbp", deadline_seconds=200))


@case
def strangers_at_the_port():
    """They connect before, and try it during training; values are what they are without them."""
    visits, ports = [], []

    def listen_and_be_visited(*arguments):
        listener = listen(*arguments)
        host, port, _token = listener.address.split()
        for said in [b""] * 300 + [b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(48), os.urandom(1 << 16)]:
            visits.append(socket.create_connection((host, int(port)), timeout=5))
            visits[-1].setblocking(False)
            with contextlib.suppress(OSError):
                visits[-1].send(said)
        ports.append((host, int(port)))
        return listener

    listen, sf._start._listener = sf._start._listener, listen_and_be_visited
    try:
        equals_method("mlp", METHODS["safusion"])
        model = made()
    finally:
        sf._start._listener = listen
    for address in ports:
        raises(ConnectionRefusedError, "", lambda at=address: socket.create_connection(at))
    loss_of(model, batch_of_rank()).backward()
    for visit in visits:
        visit.close()


@case
def stopped_rank():
    torch.manual_seed(0)
    model = sf.distribute(mlp(), "wfbp", threads=1, deadline_seconds=2)
    victim = dist.get_world_size() - 1
    pids = gathered(os.getpid())
    if dist.get_rank() == 0:
        threading.Timer(0.5, lambda: os.kill(pids[victim], signal.SIGSTOP)).start()
    try:
        long_training(model)
    except sparfuse.Error as error:
        assert f"rank {victim} does not answer" in str(error), error
        sf.detach(model)
    else:
        raise AssertionError("training went on without a rank")
    finally:
        if dist.get_rank() == 0:
            os.kill(pids[victim], signal.SIGKILL)


def part_that_never_returns(how):
    """On the main thread of the last rank, whose process it ends at once or by an error."""
    parts = {"strategy": "ahead", "planner": "layer-wise", "feedback": "residual"}
    parts |= {"collective": "sparse-allgather", "sparsifier": write_parts(NEVER_RETURNS)("Select")}
    victim = dist.get_world_size() - 1
    if dist.get_rank() == victim:
        os.environ["NEVER_RETURNS"] = how
    model = sf.distribute(mlp(), parts, density=0.05, threads=1, deadline_seconds=2)
    said = raises(sparfuse.Error, "", lambda: long_training(model))
    own = r"mine.py:Select.*: select\(g, k\) raised for tensor .*: TimeoutError \(.*mine.py, line 6\)"
    assert re.search(own if dist.get_rank() == victim else f"rank {victim} ", said), said


NEVER_RETURNS = """
import os
class Select:
    def select(self, g, k):
        how = os.environ.get("NEVER_RETURNS")
        while how == "spins": pass
        if how == "holds the lock": sum(range(10**13))
        return range(k)
"""


@case
def part_that_spins():
    part_that_never_returns("spins")


@case
def part_that_holds_the_lock():
    part_that_never_returns("holds the lock")


@case
def interrupt():
    interrupted = Path(gathered(tempfile.mkdtemp())[0], "interrupted")
    model = made()
    if dist.get_rank() == 0:
        loss = loss_of(model, batches("mlp", 0, 1)[0])
        threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        raises(KeyboardInterrupt, "", loss.backward)
        interrupted.touch()
        sf.detach(model)
    else:
        until = time.monotonic() + 10
        while not interrupted.exists() and time.monotonic() < until:  # this rank comes too late
            time.sleep(0.05)
        raises(sparfuse.Error, "rank 0 is lost", loss_of(model, batches("mlp", 0, 1)[0]).backward)


@case
def interrupt_while_ranks_connect():
    interrupted = os.path.join(gathered(tempfile.mkdtemp())[0], "interrupted")
    connect = sf._start._MethodOfRank
    if dist.get_rank() == 0:
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        raises(KeyboardInterrupt, "", made)
        open(interrupted, "w").close()
        return

    def connect_then(*arguments, **options):
        while not os.path.exists(interrupted):
            time.sleep(0.05)
        return connect(*arguments, **options)

    sf._start._MethodOfRank = connect_then
    try:
        raises(sparfuse.Error, r"not reach rank 0 at .*\(Connection refused\); it has ended", made)
    finally:
        sf._start._MethodOfRank = connect


@case
def forked_child():
    model = made()
    batch = batch_of_rank()
    loss_of(model, batch).backward()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            raises(sparfuse.Error, "was forked after", lambda: loss_of(model, batch).backward())
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    model.zero_grad()
    loss_of(model, batch).backward()


@case
def exit_without_cleaning_up():
    model = made()
    loss_of(model, batch_of_rank()).backward()


# After these, ranks are lost or leave the group at different times.
ENDS = ("killed_rank", "killed_before_it_connects", "stopped_rank", "interrupt", "part_that_spins",
        "part_that_holds_the_lock")  # fmt: skip


def detach_all():
    """Detaches the models that a case has left, so that the next begins without any."""
    sf._close_models_that_are_gone()
    for model in [distributed.module() for distributed in sf._models]:
        sf.detach(model)


def run(rank, ranks, names, store):
    torch.set_num_threads(1)
    signal.alarm(LIMIT_SECONDS)
    for number, name in enumerate(names):
        dist.init_process_group(
            "gloo", init_method=f"file://{store}{number}", rank=rank, world_size=ranks
        )
        CASES[name]()
        if name in ENDS:
            print(f"{name} ok", flush=True)
            return
        if name != "exit_without_cleaning_up":
            detach_all()
        dist.barrier()
        if rank == 0:
            print(f"{name} ok", flush=True)
        dist.destroy_process_group()


def main(ranks, names):
    # Shells start jobs in the background with this signal ignored, and cases send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = tempfile.mkdtemp()  # the ranks, which end one after the other, must not remove it
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            try:
                run(rank, ranks, names, folder + "/store")
            except BaseException:
                print(f"rank {rank}:", file=sys.stderr)
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            sys.exit(0)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    shutil.rmtree(folder)
    print("ends:", *(os.waitstatus_to_exitcode(end) for end in ends))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
