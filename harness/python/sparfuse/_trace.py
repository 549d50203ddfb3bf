"""Reads facts of a training step that torch.profiler traced, through the program `sparfuse`."""

import json
import os
import shutil
import subprocess

from sparfuse._core import ConfigError


def trace(*files, steps="profiler", group=None, program=None):
    """The facts of a trace, as a dict; for several ranks' files, a dict of "ranks" and "transfers".

    docs/traces.md explains the facts. steps: "profiler", or "optimizer" for a trace without
    prof.step(). group: the process group that counts, if there are several. program: the executable
    (default: the variable SPARFUSE, else `sparfuse` on the path). Raises ConfigError, which gives the
    reason, for a file that is refused.

    >>> import sparfuse
    >>> try:
    ...     sparfuse.trace()
    ... except sparfuse.ConfigError as error:
    ...     print(error)
    trace(): expected a file of torch.profiler
    """
    if not files:
        raise ConfigError("trace(): expected a file of torch.profiler")
    program = program or os.environ.get("SPARFUSE") or shutil.which("sparfuse")
    if program is None:
        raise ConfigError(
            "trace(): no program sparfuse on the path: expected the variable SPARFUSE to name it"
        )
    command = [program, "trace", "--json", "--steps", steps, *map(os.fspath, files)]
    if group is not None:
        command += ["--group", str(group)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigError(done.stderr.strip())
    return json.loads(done.stdout)
