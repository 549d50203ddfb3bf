#!/usr/bin/env python3
"""Trains the dense reference of `experiments/accuracy/cifar10.toml` in plain PyTorch, for its curve.

  scripts/accuracy/pytorch_reference.py IMAGEFOLDER [--trials FOLDER...] [--seeds N] [--epochs E] [--out FILE.csv]

Needs a Python with torch, numpy and Pillow; nothing of sparfuse is imported, and images are read from
the ImageFolder itself. Ranks are four parts of a batch whose gradients are averaged, each normalised
by itself, as data-parallel training does. With --trials, directories of sparfuse's dense trials with
an evaluations.npy, it prints both curves side by side.
"""

import math
import sys

import numpy as np
import reference_curves
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

MEAN = (0.50707516, 0.48654887, 0.44091784)
DEVIATION = (0.26733429, 0.25643846, 0.27615047)
RANKS, BATCH = 4, 16  # BATCH is per rank
EVALUATED = 2000  # test images, evenly spread


def read(folder):
    """(images uint8 [n, 32, 32, 3], labels int64 [n]), in the order of classes and files' names."""
    images, labels = [], []
    for label, place in enumerate(sorted(p for p in folder.iterdir() if p.is_dir())):
        for path in sorted(place.iterdir()):
            images.append(np.asarray(Image.open(path).convert("RGB")))
            labels.append(label)
    return torch.from_numpy(np.stack(images)), torch.tensor(labels)


def normalised(images):
    scaled = images.permute(0, 3, 1, 2).float() / 255
    return (scaled - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)


def augmented(images, random):
    """The images padded by four pixels, cropped at random, and flipped at random."""
    made = []
    for image in images:
        wide = F.pad(image.permute(2, 0, 1), (4, 4, 4, 4))
        x, y = (int(torch.randint(9, (1,), generator=random)) for _ in range(2))
        part = wide[:, y:y + 32, x:x + 32]
        made.append(part.flip(2) if torch.rand(1, generator=random) < 0.5 else part)
    return torch.stack(made).permute(0, 2, 3, 1)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        # Ranks average their statistics. Here the batch's parts update one set, each with this momentum.
        momentum = 1 - 0.9 ** (1 / RANKS)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs, momentum=momentum)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs, momentum=momentum)
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.more or self.stride > 1:  # a shortcut without parameters: every other pixel, zero channels
            x = F.pad(x[:, :, ::self.stride, ::self.stride],
                      (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return F.relu(x + y)


def resnet20(width):
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False),
              nn.BatchNorm2d(width, momentum=1 - 0.9 ** (1 / RANKS)), nn.ReLU()]
    inputs = width
    for stage in range(3):
        for block in range(3):
            outputs = width << stage
            layers.append(Block(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def train(seed, train_set, test_set, epochs, every, width):
    """Trains one seed; returns its curve, [(step, accuracy)]."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(1000 + seed)
    model = resnet20(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images, labels = train_set
    per_epoch = math.ceil(len(images) / (RANKS * BATCH))
    steps, curve = math.ceil(epochs * per_epoch), []
    order = None
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(images), generator=random)
        at = step % per_epoch * RANKS * BATCH
        chosen = order[at:at + RANKS * BATCH]
        for group in optimizer.param_groups:
            cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
            group["lr"] = 0.1 * (0.05 + 0.95 * cosine)  # falls to a twentieth
        model.train()
        optimizer.zero_grad()
        parts = [part for part in chosen.split(math.ceil(len(chosen) / RANKS))]
        for part in parts:
            loss = F.cross_entropy(model(normalised(augmented(images[part], random))), labels[part])
            (loss / len(parts)).backward()
        optimizer.step()
        if (step + 1) % every == 0 or step + 1 == steps:
            curve.append((step + 1, accuracy(model, *test_set)))
            print(f"seed {seed}, step {step + 1}: {curve[-1][1]:.4f}", file=sys.stderr, flush=True)
    return curve


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    right = 0
    for begin in range(0, len(images), 100):
        logits = model(normalised(images[begin:begin + 100]))
        right += int((logits.argmax(1) == labels[begin:begin + 100]).sum())
    return right / len(images)


def main():
    parser = reference_curves.parser(__doc__, every=56)
    parser.add_argument("--epochs", type=float, default=0.5)
    parser.add_argument("--width", type=int, default=8)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    train_set, (images, labels) = read(asked.folder / "train"), read(asked.folder / "test")
    spread = torch.arange(EVALUATED) * len(images) // EVALUATED
    test_set = images[spread], labels[spread]
    reference_curves.compare(asked, lambda seed: train(seed, train_set, test_set, asked.epochs,
                                                       asked.every, asked.width))


if __name__ == "__main__":
    main()
