#!/usr/bin/env python3
"""Trains the dense LSTM of `experiments/accuracy/gcide.toml` in plain PyTorch, for its curve.

  scripts/accuracy/pytorch_words_reference.py PREPARED [--trials FOLDER...] [--seeds N] [--steps N] [--out FILE.csv]

Needs a Python with torch and numpy; nothing of sparfuse is imported. Of PREPARED, the folder that
`sparfuse data prepare gcide-words` wrote, it reads the token numbers and the size of the vocabulary.
Ranks are four parts of a batch whose gradients are averaged. With --trials, directories of sparfuse's
dense trials with an evaluations.npy, it prints both curves side by side.
"""

import json
import math
import sys

import numpy as np
import reference_curves
import torch
import torch.nn.functional as F
from torch import nn

RANKS, BATCH, WINDOW, WIDTH = 4, 8, 64, 128  # BATCH is per rank
RATE, WARMUP, FLOOR = 5e-3, 20, 0.05  # steps of warm-up; the part of the rate that is left at the end
EVALUATED = 256  # windows of the valid split, evenly spread


class WordModel(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
        self.decoder = nn.Linear(WIDTH, vocabulary)
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=1 if name == "encoder.weight" else WIDTH ** -0.5)
        with torch.no_grad():
            for layer in range(2):  # gates are input, forget, cell, output: it remembers from the start
                getattr(self.rnn, f"bias_ih_l{layer}")[WIDTH:2 * WIDTH] = 1

    def forward(self, words):
        return self.decoder(self.rnn(self.encoder(words))[0])


def loss_of(model, text, begins, reduction="mean"):
    """The loss of windows that begin with no state at these words of the text."""
    windows = torch.stack([text[begin:begin + WINDOW + 1] for begin in begins])
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten(), reduction=reduction)


@torch.no_grad()
def perplexity(model, text):
    available = (len(text) - 1) // WINDOW
    count = min(EVALUATED, available)
    begins = [i * available // count * WINDOW for i in range(count)]
    loss = sum(float(loss_of(model, text, begins[i:i + 32], "sum")) for i in range(0, count, 32))
    return math.exp(loss / (count * WINDOW))


def rate_at(step, steps):
    if step < WARMUP:
        return RATE * (step + 1) / WARMUP
    cosine = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP)))
    return RATE * (FLOOR + (1 - FLOOR) * cosine)


def train(seed, text, valid, vocabulary, steps, every):
    """Trains one seed; returns its curve, [(step, perplexity)]."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(1000 + seed)
    model = WordModel(vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), eps=1e-8, weight_decay=0)
    windows = (len(text) - WINDOW) // WINDOW
    per_epoch, curve = windows // (RANKS * BATCH), []
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(windows, generator=random)
            start = int(torch.randint(WINDOW, (1,), generator=random))
        at = step % per_epoch * RANKS * BATCH
        begins = [start + int(i) * WINDOW for i in order[at:at + RANKS * BATCH]]
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps)
        optimizer.zero_grad()
        for rank in range(RANKS):
            (loss_of(model, text, begins[rank * BATCH:(rank + 1) * BATCH]) / RANKS).backward()
        optimizer.step()
        if (step + 1) % every == 0 or step + 1 == steps:
            curve.append((step + 1, perplexity(model, valid)))
            print(f"seed {seed}, step {step + 1}: {curve[-1][1]:.2f}", file=sys.stderr, flush=True)
    return curve


def main():
    parser = reference_curves.parser(__doc__, every=50)
    parser.add_argument("--steps", type=int, default=250)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    content = json.loads((asked.folder / "meta.json").read_text(encoding="utf-8"))["content"]
    if content.get("tokens") != "words" or content["token_bytes"] != 2:
        sys.exit(f"{asked.folder}: expected a text of words in two bytes each")
    text, valid = (torch.from_numpy(np.fromfile(asked.folder / f"{split}.tokens", "<u2").astype(np.int64))
                   for split in ("train", "valid"))
    reference_curves.compare(asked, lambda seed: train(seed, text, valid, content["vocabulary_size"],
                                                       asked.steps, asked.every))


if __name__ == "__main__":
    main()
