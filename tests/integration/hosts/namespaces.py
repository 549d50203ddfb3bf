"""Two hosts on one machine: network namespaces with host names of their own, joined by links.

Needs root, ip and tc; `why_not()` says what is missing. mpirun starts its daemon on the other host by
an agent that enters that namespace, where ssh would log in.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

# Like ssh: AGENT HOST COMMAND...; the command's environment has only variables that a login sets.
AGENT = """#!/bin/sh
host="$1"; shift
{refuse}exec env -i PATH="$PATH" HOME="$HOME" ip netns exec "$host" unshare --uts --mount {clock} sh -c \
  '{enter}; {mounts}eval "$*"' "$host" "$@"
"""
# If a host's processor has another name, /proc/cpuinfo shows that name there.
ENTER = 'hostname "$0"; if [ -e {folder}/$0.cpuinfo ]; then mount --bind {folder}/$0.cpuinfo /proc/cpuinfo; fi'


def why_not():
    """The reason why this machine cannot have two hosts, or None."""
    for program in ("ip", "tc", "mpirun", "unshare"):
        if not shutil.which(program):
            return f"no {program} on this machine"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"sft{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace can be made: {made.stderr.strip()}"
    shaped = subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo", "root", "tbf",
                             "rate", "1gbit", "burst", "64k", "latency", "50ms"],
                            capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None if shaped.returncode == 0 else f"this kernel cannot shape a link: {shaped.stderr.strip()}"


class Hosts:
    """Two hosts, "NAMEa" and "NAMEb", and links "net0", "net1", ... between them, each a network of its own.

    links: the Mbit/s of each link, or None for a link as fast as the machine. clock: the seconds by which
    the second host's monotonic clock is ahead, in a time namespace of its own; None: hosts share a clock.
    processors: the name of each host's processor; None: this machine's name.
    """

    def __init__(self, name, folder, links, clock=None, processors=(None, None)):
        self.names = [f"{name}a", f"{name}b"]
        self.folder = Path(folder)
        self.hostfile = self.folder / f"{name}.hosts"
        self.hostfile.write_text("".join(f"{host} slots=2\n" for host in self.names))
        self.clock = "" if clock is None else f"--time --monotonic {clock}"
        self.enter = ENTER.format(folder=self.folder)
        for host, processor in zip(self.names, processors):
            if processor:
                told = Path("/proc/cpuinfo").read_text()
                (self.folder / f"{host}.cpuinfo").write_text(
                    re.sub(r"(?m)^model name.*", f"model name\t: {processor}", told))
        self.agent = self.folder / f"{name}.agent"
        self.reach()
        try:
            self._make(links)
        except subprocess.CalledProcessError:
            self.remove()
            raise

    def reach(self, but=None, silent=None, mounts=""):
        """Sets the hosts that the agent reaches from now on: all hosts but `but`. The host `silent` takes the
        call and never answers. mounts: shell commands that change which of this machine's files hosts see."""
        refuse = f'if [ "$host" = {but} ]; then echo "$host: no route to host" >&2; exit 255; fi\n' if but else ""
        if silent:
            refuse += f'if [ "$host" = {silent} ]; then exec sleep 1000; fi\n'
        if mounts:
            script = self.agent.with_suffix(".mounts")
            script.write_text(mounts)
            mounts = f". {script}; "
        self.agent.write_text(AGENT.format(refuse=refuse, clock=self.clock, enter=self.enter,
                                           mounts=mounts))
        self.agent.chmod(0o755)

    def _make(self, links):
        for host in self.names:
            self._do("ip", "netns", "add", host)
            self._do("ip", "-n", host, "link", "set", "lo", "up")
        for number, rate in enumerate(links):
            self._do("ip", "link", "add", f"net{number}", "netns", self.names[0], "type", "veth",
                     "peer", "name", f"net{number}", "netns", self.names[1])
            for end, host in enumerate(self.names):
                self._do("ip", "-n", host, "addr", "add", f"10.77.{number}.{end + 1}/24", "dev", f"net{number}")
                self._do("ip", "-n", host, "link", "set", f"net{number}", "up")
            if rate is not None:
                self.shape(number, rate)

    def shape(self, number, rate):
        """Limits link `number` to `rate` Mbit/s from now on."""
        for host in self.names:
            self._do("tc", "-n", host, "qdisc", "replace", "dev", f"net{number}", "root", "tbf",
                     "rate", f"{rate}mbit", "burst", "64k", "latency", "100ms")

    @staticmethod
    def _do(*command):
        subprocess.run(command, check=True, capture_output=True, text=True)

    def remove(self):
        for host in self.names:
            subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)

    def environment(self):
        return {"OMPI_MCA_plm_rsh_agent": str(self.agent), "OMPI_MCA_plm": "rsh"}

    def command(self, *arguments):
        """A command that runs as if a user of the first host typed it."""
        return ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "--mount", "sh", "-c",
                f'{self.enter}; exec "$@"', self.names[0], *map(str, arguments)]
