"""Writes the experiment of trials over hosts: a small model, which takes a few steps."""


def text(name="t", *, methods=("dense",), workers=2, ranks_per_node=1, threads=1, steps=6, deadline=20, blocks=1,
         timeout=100, transport="mpi"):
    """The text of an experiment file. Seconds: `deadline` of an exchange, `timeout` of a trial."""
    return f"""
id = "{name}"
[defaults]
mode = "measured"
transport = "{transport}"
workload = "digits-resnet"
workers = {workers}
ranks_per_node = {ranks_per_node}
threads_per_worker = {threads}
batch_per_worker = 4
warmup_steps = 2
steps = {steps}
deadline_seconds = {deadline}
[[axis]]
method = [{", ".join(f'"{method}"' for method in methods)}]
[repeat]
blocks = {blocks}
timeout_seconds = {timeout}
"""
