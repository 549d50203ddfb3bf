#!/usr/bin/env python3
"""Writes the names and shapes of the tensors in published files of weights, one line a tensor.

  scripts/accuracy/library_structures.py [WORKLOAD...]

Needs a Python with torch, torchvision and transformers 4.57, whose names are those on users' disks. Each
library builds its model in the published size, without memory for the values. The tables lie in
tests/workloads/weights/structures/; a test maps each to our model of the same size.
"""

import pathlib
import sys

import torch
import torchvision
import transformers

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/workloads/weights/structures"


def bert(width, layers):
    return transformers.BertForQuestionAnswering(transformers.BertConfig(
        vocab_size=30522, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
        intermediate_size=4 * width))


def gpt2(width, layers):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=width, n_layer=layers, n_head=width // 64))


def vit(width, layers):
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
        intermediate_size=4 * width, num_labels=1000))


MODELS = {
    "bert-base-squad": lambda: bert(768, 12),
    "bert-large-squad": lambda: bert(1024, 24),
    "gpt2-small-wikitext103": lambda: gpt2(768, 12),
    "gpt2-large-wikitext103": lambda: gpt2(1280, 36),
    "vit-base-imagenet": lambda: vit(768, 12),
    "vit-large-imagenet": lambda: vit(1024, 24),
    "resnet50-imagenet": torchvision.models.resnet50,
    "resnet152-imagenet": torchvision.models.resnet152,
    "vgg16-imagenet": torchvision.models.vgg16_bn,
    "vgg19-imagenet": torchvision.models.vgg19_bn,
}


def main():
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        with torch.device("meta"):
            model = MODELS[name]()
        library = torchvision if type(model).__module__.startswith("torchvision") else transformers
        version = library.__version__.partition("+")[0]
        lines = [f"# {library.__name__} {version}, {type(model).__name__}: tensor, extents"]
        lines += [" ".join([tensor, *map(str, value.shape)]) for tensor, value in model.state_dict().items()]
        (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {len(lines) - 1} tensors")


if __name__ == "__main__":
    main()
