#!/usr/bin/env python3
"""Compares our models on weights of files with the libraries' own: transformers, torchvision and PyTorch.

  scripts/accuracy/library_models.py WEIGHTS_OUTPUTS [FAMILY...] [--markdown]
  scripts/accuracy/library_models.py WEIGHTS_OUTPUTS --minilm FOLDER [--write]

WEIGHTS_OUTPUTS is the program of that name (`ninja -C build/release weights_outputs`). Needs a Python
with torch, torchvision, safetensors and transformers 4.57, whose names are those on users' disks; nothing
of sparfuse is imported. Each family is built by its library in the size of one of our workloads, with
random values in every parameter, and saved. Ours loads the file. Logits of an evaluation and of a
training step have to agree to 1e-5, the loss too, and every gradient and running statistic to 1e-4, by
the largest difference over the largest value. A gradient that is 0 but for rounding (of the bias of keys,
or in front of batch normalisation) is held against a thousandth of the model's largest. Then files with
a mistake are planted, on each of which the comparison has to fail.

With --minilm, FOLDER holds model.safetensors, config.json and tokenizer.json of all-MiniLM-L6-v2: outputs
of all tokens of the sentences in tests/workloads/weights/minilm.json are compared, to 1e-4. --write
makes that file anew.
"""

import argparse
import hashlib
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests/workloads/weights/minilm.json"
TRANSFORMERS = "4.57"
LOGITS, GRADIENTS, OUTPUTS = 1e-5, 1e-4, 1e-4
SMALL = 1e-3  # fraction of the largest gradient


class Case:
    """A workload of ours, a library's module of the same size, and a batch."""

    def __init__(self, workload, module, inputs, targets, logits, loss, *, ours=lambda name: name,
                 transposed=lambda name: False, files=None, mistakes=None):
        self.workload, self.module, self.inputs, self.targets = workload, module, inputs, targets
        self.logits, self.loss = logits, loss  # functions of the module
        self.ours, self.transposed = ours, transposed  # functions of a parameter's name
        # {other form of the family's files: function of the tensors}, {mistake to plant: the same}.
        self.files, self.mistakes = files or {}, mistakes or {}


def randomise(module, random):
    """Gives the module values that show in its outputs: no norm is the identity, no bias is 0."""
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.dim() > 1:
                inputs = value[0].numel()
                deviation = 0.5 if "embed" in name or "wte" in name or "encoder.weight" == name \
                    else math.sqrt((2 if value.dim() == 4 else 1) / inputs)
                value.normal_(0, deviation, generator=random)
            else:
                value.normal_(0, 0.2, generator=random)
                if "norm" in name.lower() or "ln_" in name or name.split(".")[-2] in norms(module):
                    if name.endswith("weight"):
                        value.add_(1)
        for name, value in module.named_buffers():
            if name.endswith("running_mean"):
                value.normal_(0, 0.2, generator=random)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 1.5, generator=random)


def norms(module):
    kinds = (nn.BatchNorm2d, nn.LayerNorm)
    return {name.split(".")[-1] for name, part in module.named_modules() if isinstance(part, kinds)}


def changed(name, change):
    def apply(tensors):
        assert name in tensors, name
        return tensors | {name: change(tensors[name]).contiguous()}
    return apply


def swapped(a, b):
    return lambda tensors: tensors | {a: tensors[b], b: tensors[a]}


def first_thirds_swapped(dimension):
    def change(value):
        q, k, v = value.chunk(3, dimension)
        return torch.cat([k, q, v], dimension)
    return change


def both(*changes):
    def apply(tensors):
        for change in changes:
            tensors = change(tensors)
        return tensors
    return apply


def without(name):
    return lambda tensors: {n: t for n, t in tensors.items() if n != name}


def renamed(change):
    return lambda tensors: {change(n): t for n, t in tensors.items()}


def bert(random):
    config = transformers.BertConfig(
        vocab_size=1024, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=37, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0)
    module = transformers.BertForQuestionAnswering(config)
    # transformers gives the padding's embedding no gradient; NVIDIA's program and ours give it one.
    module.bert.embeddings.word_embeddings.padding_idx = None
    lengths, questions = (37, 30, 12, 21), (9, 14, 5, 3)
    words = torch.randint(1, 1024, (4, 37), generator=random)
    place = torch.arange(37)
    there = (place < torch.tensor(lengths)[:, None]).long()
    segments = (place >= torch.tensor(questions)[:, None]).long() * there
    words = words * there
    ends = torch.tensor([[10, 20, 7, 4], [12, 29, 9, 20]])

    def forward(module):
        return module(input_ids=words, token_type_ids=segments, attention_mask=there,
                      start_positions=ends[0], end_positions=ends[1])

    first = "bert.encoder.layer.1.attention."
    gamma = "bert.encoder.layer.0.output.LayerNorm.weight"

    def old(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias",
                                                                           "LayerNorm.beta")
    return Case(
        "bert-small", module, torch.stack([words, segments, there]), ends,
        lambda m: torch.stack([forward(m).start_logits, forward(m).end_logits], 2),
        lambda m: forward(m).loss, ours=lambda name: name.removeprefix("bert."),
        files={"gamma and beta": renamed(old), "no prefix": renamed(lambda n: n.removeprefix("bert.")),
               "NVIDIA's names": renamed(lambda n: n.replace("intermediate.dense.",
                                                             "intermediate.dense_act."))},
        mistakes={"a square matrix transposed": changed(first + "output.dense.weight", torch.t),
                  "queries and keys swapped": both(
                      swapped(first + "self.query.weight", first + "self.key.weight"),
                      swapped(first + "self.query.bias", first + "self.key.bias")),
                  "a gamma left at 1": changed(gamma, torch.ones_like),
                  "a gamma missing": without(gamma)})


def gpt(workload, random, layers, width, transposes):
    config = transformers.GPT2Config(
        vocab_size=63, n_positions=64, n_embd=width, n_layer=layers, n_head=4,
        activation_function="gelu_new", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0,
        eos_token_id=0)
    module = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(63, (3, 64), generator=random)  # ours has no logits for the last one
    attention = "transformer.h.1.attn."
    gamma = "transformer.h.0.ln_2.weight"

    def bare(name):
        return name.removeprefix("transformer.")
    return Case(
        workload, module, tokens[:, :-1], tokens[:, 1:].flatten(),
        lambda m: m(input_ids=tokens).logits[:, :-1],
        lambda m: m(input_ids=tokens, labels=tokens).loss, ours=bare,
        transposed=lambda name: transposes and name.startswith("h.") and name.count(".") == 4
        and name.endswith(".weight") and "ln_" not in name,
        files={"no prefix": renamed(bare),
               "with the tied head and buffers": lambda tensors: tensors | {
                   "lm_head.weight": tensors["transformer.wte.weight"],
                   "transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64).tril(),
                   "transformer.h.0.attn.masked_bias": torch.tensor(-1e4)}},
        mistakes={"attn.c_proj transposed": changed(attention + "c_proj.weight", torch.t),
                  "queries and keys swapped": both(
                      changed(attention + "c_attn.weight", first_thirds_swapped(1)),
                      changed(attention + "c_attn.bias", first_thirds_swapped(0))),
                  "a gamma left at 1": changed(gamma, torch.ones_like),
                  "a gamma missing": without(gamma)})


def vit(random):
    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
        image_size=28, patch_size=7, num_channels=1, num_labels=10, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0)
    module = transformers.ViTForImageClassification(config)
    images = torch.randn(5, 1, 28, 28, generator=random)
    labels = torch.randint(10, (5,), generator=random)
    block = "vit.encoder.layer.1."
    gamma = block + "layernorm_after.weight"
    attention = block + "attention.attention."
    return Case(
        "vit-small", module, images, labels, lambda m: m(pixel_values=images).logits,
        lambda m: m(pixel_values=images, labels=labels).loss,
        files={"no prefix, a pooler": lambda tensors: {
            n.removeprefix("vit."): t for n, t in tensors.items()} | {
                "pooler.dense.weight": torch.eye(64), "pooler.dense.bias": torch.zeros(64)}},
        mistakes={"a square matrix transposed": changed(block + "attention.output.dense.weight",
                                                        torch.t),
                  "queries and keys swapped": both(
                      swapped(attention + "query.weight", attention + "key.weight"),
                      swapped(attention + "query.bias", attention + "key.bias")),
                  "a gamma left at 1": changed(gamma, torch.ones_like),
                  "a gamma missing": without(gamma)})


def classes(workload, module, random, shape, count, square, norm):
    images = torch.randn(*shape, generator=random)
    labels = torch.randint(count, shape[:1], generator=random)
    return Case(
        workload, module, images, labels, lambda m: m(images),
        lambda m: F.cross_entropy(m(images), labels),
        files={"of DataParallel": renamed(lambda n: "module." + n)},
        mistakes={"a square kernel transposed": changed(square, lambda t: t.transpose(0, 1)),
                  "a gamma left at 1": changed(norm + ".weight", torch.ones_like),
                  "a gamma missing": without(norm + ".weight"),
                  "mean and variance swapped": swapped(norm + ".running_mean", norm + ".running_var"),
                  "a running mean left at 0": changed(norm + ".running_mean", torch.zeros_like)})


def resnet(random):
    module = torchvision.models.resnet50()
    return classes("resnet50-imagenet", module, random, (4, 3, 224, 224), 1000,
                   "layer2.1.conv2.weight", "layer3.0.downsample.1")


def vgg_small(random):
    """A case of torchvision's layers in our small size, on images of one colour."""
    features = torchvision.models.vgg.make_layers([8, "M", 16, "M", 32, 32, "M"], batch_norm=True)
    features[0] = nn.Conv2d(1, 8, 3, padding=1)
    module = torchvision.models.VGG(features, num_classes=10, init_weights=False, dropout=0)
    module.avgpool = nn.Identity()
    module.classifier[0], module.classifier[3] = nn.Linear(288, 128), nn.Linear(128, 128)
    module.classifier[6] = nn.Linear(128, 10)
    return classes("vgg-small", module, random, (6, 1, 28, 28), 10, "features.11.weight", "features.5")


def vgg(random):
    case = classes("vgg16-imagenet", torchvision.models.vgg16_bn(init_weights=False, dropout=0), random,
                   (2, 3, 224, 224), 1000, "features.3.weight", "features.4")
    case.files = case.mistakes = {}  # files have half a gigabyte; vgg-small plants mistakes
    return case


class Recurrent(nn.Module):
    """A word-level model whose parts have the names of PyTorch's example."""

    def __init__(self, words, width, tied):
        super().__init__()
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, 2, batch_first=True)
        self.decoder = nn.Linear(width, words)
        if tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


class Positions(nn.Module):
    def __init__(self, width):
        super().__init__()
        place = torch.arange(5000.0)[:, None]
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000) / width))
        waves = torch.stack([torch.sin(place * rate), torch.cos(place * rate)], 2).flatten(1)
        self.register_buffer("pe", waves[:, None])  # [longest, 1, width], as in PyTorch's example


class Encoders(nn.Module):
    def __init__(self, words, width, heads, layers):
        super().__init__()
        self.pos_encoder = Positions(width)
        layer = nn.TransformerEncoderLayer(width, heads, width, dropout=0, batch_first=True)
        self.transformer_encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.encoder = nn.Embedding(words, width)
        self.decoder = nn.Linear(width, words)
        self.width = width

    def forward(self, tokens):
        window = tokens.shape[1]
        x = self.encoder(tokens) * math.sqrt(self.width) + self.pos_encoder.pe[:window, 0]
        later = nn.Transformer.generate_square_subsequent_mask(window)
        return self.decoder(self.transformer_encoder(x, mask=later))


def words(workload, module, random, vocabulary, shape, mistakes, files=None):
    tokens = torch.randint(vocabulary, (shape[0], shape[1] + 1), generator=random)
    inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
    return Case(workload, module, inputs, targets, lambda m: m(inputs),
                lambda m: F.cross_entropy(m(inputs).flatten(0, 1), targets), files=files,
                mistakes=mistakes)


def gates_swapped(value):
    gates = value.chunk(4)
    return torch.cat([gates[1], gates[0], *gates[2:]])


def lstm(random):
    return words("lstm-small", Recurrent(63, 128, tied=False), random, 63, (3, 64),
                 {"two gates swapped": both(*(changed(f"rnn.{part}_hh_l1", gates_swapped)
                                              for part in ("weight", "bias"))),
                  "layers swapped": swapped("rnn.weight_hh_l0", "rnn.weight_hh_l1")},
                 {"of DataParallel": renamed(lambda n: "module." + n)})


def tied_lstm(random):
    return words("lstm1500-wikitext2", Recurrent(33278, 1500, tied=True), random, 33278, (2, 6), {},
                 {"with the tied decoder": lambda tensors: tensors | {
                     "decoder.weight": tensors["encoder.weight"].clone()}})


def transformer(random):
    layer = "transformer_encoder.layers.1."
    return words("transformer-small", Encoders(63, 96, 4, 2), random, 63, (3, 64),
                 {"a square matrix transposed": changed(layer + "self_attn.out_proj.weight", torch.t),
                  "queries and keys swapped": both(
                      changed(layer + "self_attn.in_proj_weight", first_thirds_swapped(0)),
                      changed(layer + "self_attn.in_proj_bias", first_thirds_swapped(0))),
                  "a gamma left at 1": changed(layer + "norm1.weight", torch.ones_like),
                  "a gamma missing": without(layer + "norm1.weight")},
                 {"of DataParallel": renamed(lambda n: "module." + n)})


FAMILIES = {
    "bert": ("transformers", bert),
    "gpt": ("transformers", lambda random: gpt("gpt-small", random, 3, 96, transposes=False)),
    "gpt-transposed": ("transformers", lambda random: gpt("text-gpt", random, 4, 128, transposes=True)),
    "vit": ("transformers", vit),
    "resnet": ("torchvision", resnet),
    "vgg-small": ("torchvision", vgg_small),
    "vgg": ("torchvision", vgg),
    "lstm": ("PyTorch", lstm),
    "lstm-tied": ("PyTorch", tied_lstm),
    "transformer": ("PyTorch", transformer),
}


def saved(tensors, path):
    safetensors.torch.save_file({n: t.detach().clone().contiguous() for n, t in tensors.items()}, path)
    return path


def unlike(ours, theirs, least=0.0):
    """The largest difference over the largest value, or over `least` if that is more."""
    if ours.shape != theirs.shape:
        return math.inf
    scale = max(theirs.abs().max().item(), least)
    difference = (ours - theirs).abs().max().item()
    return difference / scale if scale > 0 else (0.0 if difference == 0 else math.inf)


def expected(case):
    """The outputs and gradients of the library's model, by the names of weights_outputs."""
    module = case.module.eval()
    with torch.no_grad():
        found = {"logits": case.logits(module)}
    module.train()
    before = {n: b.clone() for n, b in module.named_buffers()}
    with torch.no_grad():
        found["training.logits"] = case.logits(module)
    for name, buffer in module.named_buffers():  # only the training step may change them
        buffer.copy_(before[name])
    loss = case.loss(module)
    loss.backward()
    found["loss"] = loss.detach()
    for name, value in module.named_parameters():
        if value.grad is not None:
            name = case.ours(name)
            found["gradient." + name] = value.grad.t() if case.transposed(name) else value.grad
    for name, buffer in module.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            found["statistic." + name] = buffer
    return found


def run(program, folder, case, tensors, *words):
    """(tensors that the program wrote, or None; its error message)"""
    out = folder / "out.safetensors"
    given = {"inputs": case.inputs} | ({} if case.targets is None else {"targets": case.targets})
    done = subprocess.run(
        [program, case.workload, saved(tensors, folder / "weights.safetensors"),
         saved(given, folder / "inputs.safetensors"), out, *words], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip()
    return safetensors.torch.load_file(out), ""


def compare(ours, theirs):
    """({kind: (largest difference, tensor's name)}, names that only one of both has)"""
    largest = max((t.abs().max().item() for n, t in theirs.items() if n.startswith("gradient.")),
                  default=0)
    worst = {}
    for name in ours.keys() & theirs.keys():
        kind = name.split(".")[0] if name.startswith(("gradient.", "statistic.")) else name
        found = unlike(ours[name], theirs[name], SMALL * largest if kind == "gradient" else 0)
        worst[kind] = max(worst.get(kind, (-1.0, "")), (found, name))
    return worst, sorted(ours.keys() ^ theirs.keys())


def agrees(worst, odd):
    limits = {"gradient": GRADIENTS, "statistic": GRADIENTS}
    return not odd and all(d <= limits.get(kind, LOGITS) for kind, (d, _) in worst.items())


def check(program, folder, family, problems):
    library, make = FAMILIES[family]
    random = torch.Generator().manual_seed(7)
    torch.manual_seed(7)
    case = make(random)
    randomise(case.module, random)
    tied = {"lm_head.weight"} | ({"decoder.weight"} if family == "lstm-tied" else set())
    tensors = {n: t.detach().clone() for n, t in case.module.state_dict().items() if n not in tied}
    theirs = expected(case)
    row = None
    for form, change in {"as saved": lambda t: t, **case.files}.items():
        ours, said = run(program, folder, case, change(tensors))
        if ours is None:
            problems.append(f"{family}, {form}: {said}")
            continue
        worst, odd = compare(ours, theirs)
        row = row or (library, case.workload, worst)
        text = ", ".join(f"{kind} {d:.1e}" for kind, (d, _) in sorted(worst.items()))
        print(f"{family}, {form}: {text}", flush=True)
        if not agrees(worst, odd):
            problems.append(f"{family}, {form}: {worst}, only in one: {odd[:5]}")
    for mistake, change in case.mistakes.items():
        ours, said = run(program, folder, case, change(tensors))
        verdict = "refused" if ours is None else "unlike"
        if ours is not None and agrees(*compare(ours, theirs)):
            problems.append(f"{family}: {mistake} was not noticed")
            verdict = "NOT NOTICED"
        print(f"{family}, planted: {mistake}: {verdict}", flush=True)
    return row


def minilm(program, folder, place, write):
    """Compares MiniLM's outputs; returns the list of disagreements."""
    from tokenizers import Tokenizer
    path = place / "model.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    fixture = json.loads(FIXTURE.read_text(encoding="utf-8"))
    texts = [sentence["text"] for sentence in fixture["sentences"]]
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    cut = [tokenizer.encode(text) for text in texts]
    lengths = [len(each.ids) for each in cut]
    there = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.zeros_like(there)
    for row, each in zip(ids, cut, strict=True):
        row[:len(each.ids)] = torch.tensor(each.ids)
    config = transformers.BertConfig.from_json_file(place / "config.json")
    tensors = safetensors.torch.load_file(path)
    module = transformers.BertModel(config).eval()
    module.load_state_dict({n: t for n, t in tensors.items() if not n.endswith("position_ids")})
    segments = torch.zeros_like(ids)
    with torch.no_grad():
        theirs = module(input_ids=ids, token_type_ids=segments, attention_mask=there).last_hidden_state
    case = Case("minilm-questions", module, torch.stack([ids, segments, there]), None, None, None)
    ours, said = run(program, folder, case, tensors, "outputs")
    if ours is None:
        return [said]
    difference = ((ours["logits"] - theirs).abs().amax(2) * there).max().item()
    print(f"MiniLM, {len(texts)} sentences, {sum(lengths)} tokens of {theirs.shape[2]} values: the largest "
          f"difference is {difference:.1e}, the largest value {theirs.abs().max().item():.2f}")
    if write:
        pieces = {}
        for i, (each, output) in enumerate(zip(cut, theirs, strict=True)):
            pieces.update(zip(each.tokens, each.ids, strict=True))
            n = len(each.ids)
            kept = [(t, (37 * i + 101 * j) % theirs.shape[2]) for j, t in
                    enumerate((0, 1, n // 2, n - 2, n - 1))]
            fixture["sentences"][i] = {
                "text": texts[i], "tokens": each.ids, "length": round(output[:n].norm().item(), 4),
                "outputs": [[t, d, round(output[t, d].item(), 6)] for t, d in kept]}
        fixture |= {"weights_sha256": digest, "pieces": dict(sorted(pieces.items(), key=lambda p: p[1])),
                    "made_with": f"transformers {transformers.__version__}, torch {torch.__version__}"}
        head = {k: fixture[k] for k in ("made_with", "weights_sha256", "pieces")}
        text = json.dumps(head, ensure_ascii=False)[:-1] + ', "sentences": [\n'
        text += ",\n".join(json.dumps(s, ensure_ascii=False) for s in fixture["sentences"]) + "\n]}\n"
        FIXTURE.write_text(text, encoding="utf-8")
        print(f"{FIXTURE}: {FIXTURE.stat().st_size} bytes")
    return [] if difference <= OUTPUTS else ["MiniLM's outputs differ"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/data.md")
    parser.add_argument("--minilm", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if not transformers.__version__.startswith(TRANSFORMERS + "."):
        sys.exit(f"transformers {transformers.__version__}: expected {TRANSFORMERS}, whose names the files have")
    unknown = [family for family in asked.families if family not in FAMILIES]
    if unknown:
        sys.exit(f"no family {unknown[0]}; expected some of {', '.join(FAMILIES)}")
    torch.set_num_threads(1)
    print(f"transformers {transformers.__version__}, torchvision {torchvision.__version__}, "
          f"torch {torch.__version__}")
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if asked.minilm:
            problems = minilm(asked.program, folder, asked.minilm, asked.write)
        else:
            rows = [check(asked.program, folder, family, problems)
                    for family in asked.families or FAMILIES]
            if asked.markdown:
                kinds = ("logits", "training.logits", "loss", "gradient", "statistic")
                for library, workload, worst in filter(None, rows):
                    values = " | ".join(f"{worst[k][0]:.0e}" if k in worst else "" for k in kinds)
                    print(f"| {library} | `{workload}` | {values} |")
    for problem in problems:
        print(f"DISAGREES: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
