#!/usr/bin/env python3
"""Measures training steps with sparfuse.torch, and with torch's DDP and its hooks.

    scripts/torch_speed/torch_speed.py --model mlp --ranks 2 --gbps 1 [--out FILE.json]

Run by a Python that has PyTorch and the package sparfuse. Every rank holds one copy of the model for each
way of exchange, and takes a step of each in turn, in an order that changes from round to round: what
drifts meets all of them. Ranks have one thread each. With --gbps every rank is in a network namespace of
its own, whose link tc holds to that rate (needs root and iproute2); without, ranks share the loopback.
A step's time is that of the slowest rank; bytes are counted by rank 0's interface, on the loopback by
all ranks together and divided. Prints medians with their
quartiles, and the ratio to plain DDP with a 95 % interval of paired rounds. On a shaped link "of sum" is the
ratio to the step without an exchange plus the time of the way's own bytes on the link, also paired: 1 would be
an exchange that costs nothing but the wire and overlaps with nothing.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

SUBNET = "10.78.0"
PLAIN, ALONE = "DDP", "no exchange"
POWERSGD, TOP_K = "DDP, PowerSGD of rank 4", "DDP, top-k in Python"


class Namespaces:
    """One network namespace for each rank, joined by a bridge; tc limits each end of a link to the rate."""

    def __init__(self, ranks, gbps):
        self.names = [f"sftorch{os.getpid()}-{rank}" for rank in range(ranks)]
        self.switch = f"sftorch{os.getpid()}-switch"
        # Jumbo frames above 1 Gbit/s: with small frames the processor would be the limit.
        mtu, burst = ("9000", "256kb") if gbps > 1 else ("1500", "32kb")
        shape = ["root", "tbf", "rate", f"{gbps * 1000:.0f}mbit", "burst", burst, "latency", "20ms"]
        try:
            self.call("netns", "add", self.switch)
            self.call("-n", self.switch, "link", "add", "br0", "mtu", mtu, "type", "bridge")
            self.call("-n", self.switch, "link", "set", "br0", "up")
            for rank, name in enumerate(self.names):
                self.call("netns", "add", name)
                self.call("link", "add", "eth0", "mtu", mtu, "netns", name, "type", "veth",
                          "peer", "name", f"port{rank}", "mtu", mtu, "netns", self.switch)  # fmt: skip
                self.call("-n", name, "addr", "add", f"{SUBNET}.{10 + rank}/24", "dev", "eth0")
                self.call("-n", name, "link", "set", "lo", "up")
                self.call("-n", name, "link", "set", "eth0", "up")
                self.call("-n", self.switch, "link", "set", f"port{rank}", "master", "br0", "up")
                for end in ((name, "eth0"), (self.switch, f"port{rank}")):
                    self.call("netns", "exec", end[0], "tc", "qdisc", "add", "dev", end[1], *shape)
        except subprocess.CalledProcessError as error:
            self.remove()
            raise SystemExit(f"no shaped network: {' '.join(error.cmd)}: {error.stderr.strip()}") from None

    @staticmethod
    def call(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def remove(self):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def launch(options):
    shaped = options.gbps > 0
    if shaped and not (os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc")):
        raise SystemExit("--gbps needs root, ip and tc")
    network = Namespaces(options.ranks, options.gbps) if shaped else None
    try:
        processes = []
        for rank in range(options.ranks):
            command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]
            environment = os.environ | {
                "SPARFUSE_TORCH_SPEED_RANK": str(rank),
                "RANK": str(rank),
                "WORLD_SIZE": str(options.ranks),
                "MASTER_ADDR": f"{SUBNET}.10" if shaped else "127.0.0.1",
                "MASTER_PORT": str(options.port),
                "GLOO_SOCKET_IFNAME": "eth0" if shaped else "lo",
                "OMP_NUM_THREADS": "1",
            }
            if shaped:
                command = ["ip", "netns", "exec", network.names[rank], *command]
            processes.append(subprocess.Popen(command, env=environment))
        if any([process.wait() for process in processes]):
            raise SystemExit("a rank failed")
    finally:
        if network:
            network.remove()


def sent_bytes(interface):
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            return int(counters.split()[8])
    raise SystemExit(f"no interface {interface}")


def models(torch):
    """{name: (function that makes the module, function that draws a batch (inputs, targets))}."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (
                part.view(batch, length, 4, width // 4).transpose(1, 2)
                for part in self.qkv(self.first(x)).chunk(3, dim=2)
            )
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.second(x))))

    class Gpt(nn.Module):
        """A GPT of 4.2M elements: four blocks of width 256, 4,096 tokens, tied embedding and output."""

        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(4096, 256)
            self.blocks = nn.ModuleList([Block(256) for _ in range(4)])
            self.output = nn.Linear(256, 4096, bias=False)
            self.output.weight = self.tokens.weight

        def forward(self, x):
            x = self.tokens(x)
            for block in self.blocks:
                x = block(x)
            return self.output(x).flatten(0, 1)

    def mlp():  # 6.3M elements
        return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))

    def of_mlp():
        return torch.randn(64, 1024), torch.randint(10, (64,))

    def of_gpt():
        words = torch.randint(4096, (4, 129))
        return words[:, :-1], words[:, 1:].flatten()

    return {"mlp": (mlp, of_mlp), "gpt": (Gpt, of_gpt)}


def top_k_in_python(torch, distributed, density):
    """A DDP hook as users write it by hand: residual, torch.topk, and a gather of indices and values."""
    residuals = {}

    def hook(_, bucket):
        gradient = bucket.buffer()
        residual = residuals.get(bucket.index())
        # DDP rebuilds its buckets after the first step.
        fits = residual is not None and residual.numel() == gradient.numel()
        total = gradient + residual if fits else gradient.clone()
        count = max(1, int(density * total.numel()))
        chosen = total.abs().topk(count).indices
        values = total[chosen]
        total[chosen] = 0
        residuals[bucket.index()] = total
        world = distributed.get_world_size()
        all_indices = [torch.empty_like(chosen) for _ in range(world)]
        all_values = [torch.empty_like(values) for _ in range(world)]
        distributed.all_gather(all_indices, chosen)
        distributed.all_gather(all_values, values)
        average = torch.zeros_like(gradient)
        for indices, parts in zip(all_indices, all_values):
            average.index_add_(0, indices, parts, alpha=1 / world)
        done = torch.futures.Future()
        done.set_result(average)
        return done

    return hook


def ways(torch, distributed, options, make):
    """{name of a way of exchange: model that exchanges in that way}."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel as Ddp

    import sparfuse.torch as sf

    def model():
        torch.manual_seed(0)
        return make()

    found = {ALONE: model(), PLAIN: Ddp(model())}
    found["DDP, fp16 hook"] = Ddp(model())
    found["DDP, fp16 hook"].register_comm_hook(None, default_hooks.fp16_compress_hook)
    # One bucket: with two, PowerSGD's collectives start in any order, at which gloo fails.
    found[POWERSGD] = Ddp(model(), bucket_cap_mb=1000)
    found[POWERSGD].register_comm_hook(
        powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2),
        powerSGD_hook.powerSGD_hook,
    )
    found[TOP_K] = Ddp(model())
    found[TOP_K].register_comm_hook(None, top_k_in_python(torch, distributed, options.density))
    for method in options.methods.split(","):
        density = {} if method in ("dense", "ddp") else {"density": options.density}
        found[f"sparfuse, {method}"] = sf.distribute(model(), method=method, **density)
    return found


def take_turns(options):
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    make, batch = models(torch)[options.model]
    all_ways = ways(torch, distributed, options, make)
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.01) for name, model in all_ways.items()}
    torch.manual_seed(1 + rank)
    order = random.Random(0)
    seconds = {name: [] for name in all_ways}
    sent = {name: [] for name in all_ways}
    for turn in range(options.warm_up + options.rounds):
        names = list(all_ways)
        order.shuffle(names)
        for name in names:
            inputs, targets = batch()
            optimizers[name].zero_grad()
            distributed.barrier()
            before, begin = sent_bytes(interface), time.perf_counter()
            torch.nn.functional.cross_entropy(all_ways[name](inputs), targets).backward()
            optimizers[name].step()
            if turn >= options.warm_up:
                seconds[name].append(time.perf_counter() - begin)
                sent[name].append(sent_bytes(interface) - before)
    table = torch.tensor(list(seconds.values()))
    distributed.all_reduce(table, distributed.ReduceOp.MAX)
    if rank == 0:
        elements = sum(p.numel() for p in all_ways[ALONE].parameters())
        write(options, dict(zip(all_ways, table.tolist())), sent, elements, torch.__version__)
    distributed.barrier()
    distributed.destroy_process_group()


def interval(ratios):
    """The 95 % interval of the median over paired rounds, by bootstrap with a fixed seed."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(1000))
    return medians[25], medians[974]


def write(options, seconds, sent, elements, version):
    plain = seconds[PLAIN]
    rows = {}
    for name, each in seconds.items():
        ratios = [a / b for a, b in zip(each, plain)]
        low, high = interval(ratios)
        quarter = statistics.quantiles(each, n=4)
        rows[name] = {
            "median_ms": 1e3 * statistics.median(each),
            "quartiles_ms": [1e3 * quarter[0], 1e3 * quarter[2]],
            "of_ddp": statistics.median(ratios),
            "of_ddp_low": low,
            "of_ddp_high": high,
            "sent_bytes": statistics.median(sent[name]) / (1 if options.gbps else options.ranks),
            "of_powersgd": statistics.median(a / b for a, b in zip(each, seconds[POWERSGD])),
            "of_top_k": statistics.median(a / b for a, b in zip(each, seconds[TOP_K])),
        }
        if options.gbps:
            on_link = rows[name]["sent_bytes"] * 8 / (options.gbps * 1e9)
            rows[name]["of_sum"] = statistics.median(
                a / (b + on_link) for a, b in zip(each, seconds[ALONE])
            )
    link = f"{options.gbps:g} Gbit/s" if options.gbps else "loopback, unshaped"
    found = {
        "model": options.model,
        "elements": elements,
        "ranks": options.ranks,
        "link": link,
        "density": options.density,
        "rounds": options.rounds,
        "torch": version,
        "cpu": re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1],
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{options.model}, {elements:,} elements, {options.ranks} ranks of one thread, {link}, density "
          f"{options.density:g}; torch {version}, {found['cpu']}, {found['cores']} cores, "
          f"n = {options.rounds}")  # fmt: skip
    print(f"{'':28} {'step ms':>9}  {'quartiles':>17}  {'of DDP':>6}  {'95 %':>12}  {'sent KB':>9}  "
          f"{'PowerSGD':>8}  {'top-k':>6}  {'of sum':>6}")  # fmt: skip
    for name, row in rows.items():
        low, high = row["quartiles_ms"]
        print(f"{name:28} {row['median_ms']:9.1f}  {f'[{low:.1f}, {high:.1f}]':>17}  {row['of_ddp']:6.2f}  "
              f"[{row['of_ddp_low']:.2f}, {row['of_ddp_high']:.2f}]  {row['sent_bytes'] / 1e3:9.0f}  "
              f"{row['of_powersgd']:8.2f}  {row['of_top_k']:6.2f}  {row.get('of_sum', float('nan')):6.2f}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("mlp", "gpt"), default="mlp")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--gbps", type=float, default=0, help="Gbit/s of each rank's link; 0: the loopback as it is")
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--methods", default="ddp,wfbp,safusion", help="methods of sparfuse, separated by commas")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--port", type=int, default=29731)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if "SPARFUSE_TORCH_SPEED_RANK" in os.environ:
        take_turns(options)
    else:
        launch(options)


if __name__ == "__main__":
    main()
