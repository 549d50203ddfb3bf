"""Trains the model of text-gpt by DDP over gloo, in as many processes as RANKS, and times steps.

torchrun is not needed: trace_fidelity.py starts it, a process a rank.
"""

import json
import os
import sys
import time
from statistics import median_high as median

import torch
from torch import nn
from torch.distributed import HashStore, all_reduce, barrier, init_process_group
from torch.profiler import ProfilerActivity, profile, schedule

LAYERS, WIDTH, HEADS, WINDOW, VOCABULARY, BATCH = 4, 128, 4, 64, 128, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (t.unflatten(2, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).flatten(2))
        return x + self.c_out(nn.functional.gelu(self.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def gpt():
    """The factory that `python -m sparfuse.describe` calls: (module, inputs)."""
    return Gpt(), torch.zeros((1, WINDOW), dtype=torch.long)


def times_of(function, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return times


def main():
    rank, world, out, profiled = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1"
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if world > 1:
        init_process_group("gloo", rank=rank, world_size=world)
    model = Gpt()
    trained = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    tokens = torch.randint(0, VOCABULARY, (BATCH, WINDOW))

    def step():
        optimizer.zero_grad()
        logits = trained(tokens)
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    for _ in range(5):
        step()
    if profiled:
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=2, active=8),
            record_shapes=True,
            on_trace_ready=lambda p: p.export_chrome_trace(f"{out}/trace-rank{rank}.json.gz"),
        ) as profiler:
            for _ in range(11):
                step()
                profiler.step()
        return
    found = {"step_ms": 1e3 * median(times_of(step, 30))}
    if world == 1:  # times what DDP's hooks and copies take where there is nobody to exchange with
        init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        trained = nn.parallel.DistributedDataParallel(model)
        times_of(step, 5)
        added_ms = 1e3 * median(times_of(step, 30)) - found["step_ms"]
        found["hook_host_us_a_tensor"] = max(0, 1e3 * added_ms / len(list(model.parameters())))
    if world > 1:  # times the links by the operation that DDP uses
        sizes = [2**power for power in range(10, 24, 2)]
        found["all_reduce"] = []
        for size in sizes:
            data = torch.zeros(size // 4)
            barrier()
            found["all_reduce"].append(
                [size, 1e6 * median(times_of(lambda data=data: all_reduce(data), 15))]
            )
    else:  # times a matrix product and memory, for a prediction without a trace
        a, b = torch.randn(BATCH * WINDOW, WIDTH), torch.randn(WIDTH, 4 * WIDTH)
        seconds = median(times_of(lambda: a @ b, 200))
        found["tflops"] = 2e-12 * BATCH * WINDOW * WIDTH * 4 * WIDTH / seconds
        data = torch.zeros(1 << 24)
        seconds = median(times_of(lambda: data.add_(1.0), 10))
        found["memory_gbytes_per_s"] = 2e-9 * data.numel() * 4 / seconds
    if rank == 0:
        print(json.dumps(found), flush=True)
    if world > 1:
        barrier()
    os._exit(0)  # beside gloo's threads, an interpreter's end sometimes fails


if __name__ == "__main__":
    main()
