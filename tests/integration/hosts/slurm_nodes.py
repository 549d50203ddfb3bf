"""Brings up a Slurm of two nodes on this machine, runs a command as its user would, and takes it down.

  slurm_nodes.py [--share FOLDER]... [--hide FOLDER]... [--set NAME=VALUE]... COMMAND [ARGUMENT...]

Each node has its own host name, /tmp and /dev/shm, and sees of this machine's folders all but those
of --hide, which are empty there; the user's machine has a third /tmp. What lies in a folder of
--share, created if need be, all of them see. --set changes a line of slurm.conf. The command finds Slurm's programs on its PATH, and in
SLURM_NODES_FOLDER the daemons' logs (slurmctld.log, n1.log, n2.log) and process ids (n1.pid, ...).
A node's daemon that was killed is started again when somebody removes its n1.pid.

Needs root, for mount namespaces. Debian's packages of Slurm are unpacked for it alone where they
are not installed: apt-get download fetches them once. Exit status: the command's; 77 where Slurm
cannot be had here, with the reason.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NODES = ("n1", "n2")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2")
PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
UNAVAILABLE = 77

# Two daemons on one machine differ in their ports. Accounting, cgroups and prologs are left to sites. The
# PMIx plugin names files in TmpFS by the job's number alone.
CONFIG = """
ClusterName=two
SlurmctldHost=localhost
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
PluginDir={plugins}
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
TmpFS=/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
SlurmdTimeout=30
SlurmdParameters=config_overrides
InactiveLimit=0
KillWait=30
UnkillableStepTimeout=10
MinJobAge=60
NodeName=n1 NodeHostname=n1 NodeAddr=127.0.0.1 Port={port_n1} CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname=n2 NodeAddr=127.0.0.1 Port={port_n2} CPUs=4 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class Unavailable(Exception):
    """There is no Slurm here; the message says why."""


def call(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def unpacked_packages():
    """The folder with the packages' files, fetched once per machine; None if they are installed."""
    if shutil.which("slurmctld") and shutil.which("slurmd") and shutil.which("munged"):
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparfuse" / "slurm"
    if (cache / "root").is_dir():
        return cache / "root"
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise Unavailable("there is neither Slurm nor apt-get to fetch it with")
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
        done = subprocess.run(["apt-get", "download", "-qq", *PACKAGES], cwd=folder, text=True,
                              capture_output=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"apt-get download {' '.join(PACKAGES)}: {done.stderr.strip()[-300:]}")
        for package in Path(folder).glob("*.deb"):
            call("dpkg", "-x", package, Path(folder) / "root")
        for name in ("slurmctld", "slurmd", "slurmstepd"):
            (Path(folder) / "root/usr/sbin" / name).symlink_to(f"{name}-wlm")
        cache.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # another process was faster
            (Path(folder) / "root").rename(cache / "root")
    return cache / "root"


def mount(*arguments):
    call("mount", *arguments)


def hide(folder):
    mount("-t", "tmpfs", "tmpfs", folder)


def own_namespace(hidden, kept):
    """Gives this process mounts of its own, in which folders of `hidden` are empty and those of `kept` stay."""
    open_folders = {folder: os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in kept}
    for folder in hidden:
        if Path(folder).is_dir():  # not if it lies beneath a folder that is hidden already
            hide(folder)
    for folder, descriptor in open_folders.items():
        Path(folder).mkdir(parents=True, exist_ok=True)
        call("mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{descriptor}", folder, pass_fds=[descriptor])
        os.close(descriptor)


def free_ports(count):
    """Free ports of this machine, on which others may run a Slurm, too."""
    with contextlib.ExitStack() as kept:
        sockets = [kept.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]


class SlurmNodes:
    """The daemons of a Slurm of two nodes, and the folder of their files."""

    def __init__(self, folder, hidden, shared, settings):
        self.settings = settings  # lines such as "MpiDefault=pmix"
        self.folder = Path(folder)
        self.hidden = [*hidden, "/tmp", "/dev/shm"]
        self.kept = [str(folder), *shared]
        self.daemons = {}  # {name: process}
        self.config = self.folder / "slurm.conf"

    def start(self):
        port, port_n1, port_n2 = free_ports(3)
        text = CONFIG.format(folder=self.folder, plugins=PLUGINS, port=port, port_n1=port_n1, port_n2=port_n2)
        for setting in self.settings:
            text = re.sub(rf"(?m)^{setting.split('=')[0]}=.*$", setting, text)
        self.config.write_text(text)
        os.environ["SLURM_CONF"] = str(self.config)
        os.environ["SLURM_NODES_FOLDER"] = str(self.folder)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.daemon("munged", "munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                    f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/munged.log")
        self.wait_for(lambda: (self.folder / "munge.socket").exists(), "munged")
        (self.folder / "state").mkdir()
        self.daemon("slurmctld", "slurmctld", "-D", "-f", self.config)
        for node in NODES:
            self.start_node(node)
        self.wait_for(lambda: self.idle() == len(NODES), "nodes")

    def start_node(self, node):
        (self.folder / f"spool_{node}").mkdir(exist_ok=True)
        (self.folder / f"{node}.pid").touch()
        self.daemon(node, "unshare", "--mount", "--uts", "--propagation", "private", sys.executable, __file__,
                    "--node", node, *(word for folder in self.hidden for word in ("--hide", folder)),
                    *(word for folder in self.kept for word in ("--share", folder)),
                    "slurmd", "-D", "-N", node, "-f", self.config)

    def daemon(self, name, *command):
        log = (self.folder / f"{name}.log").open("a")
        self.daemons[name] = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log,
                                              stderr=log, start_new_session=True)

    @staticmethod
    def idle():
        done = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], text=True, capture_output=True, check=False)
        return done.stdout.split().count("idle")

    def wait_for(self, ready, what):
        until = time.monotonic() + 30
        while not ready():
            if time.monotonic() > until or any(daemon.poll() is not None for daemon in self.daemons.values()):
                logs = "".join(f"{log.name}:\n{log.read_text()[-1500:]}\n" for log in self.folder.glob("*.log"))
                raise Unavailable(f"{what} did not start\n{logs}")
            time.sleep(0.1)

    def call(self, command):
        """Runs a command, and meanwhile starts a killed node again if its pid file is gone; returns the
        command's exit status."""
        caller = subprocess.Popen(command)
        while caller.poll() is None:
            for node in NODES:
                if self.daemons[node].poll() is not None and not (self.folder / f"{node}.pid").exists():
                    self.start_node(node)
            time.sleep(0.05)
        return caller.returncode

    def stop(self):
        subprocess.run(["scancel", "--signal=KILL", "--user=root"], capture_output=True, timeout=20, check=False)
        for daemon in reversed(self.daemons.values()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGTERM)
        for daemon in self.daemons.values():
            try:
                daemon.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hide", action="append", default=[])
    parser.add_argument("--share", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    parser.add_argument("--unshared", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    if asked.node:
        own_namespace(asked.hide, asked.share)
        call("hostname", asked.node)
        os.execvp(asked.command[0], asked.command)
    if os.geteuid() != 0:
        raise Unavailable("nodes of their own need root")
    # On SIGTERM it takes down the daemons that it brought up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if not asked.unshared:
        # A namespace of processes, too, so that no process is left.
        packages = unpacked_packages()
        folder = tempfile.mkdtemp(prefix="sparfuse-slurm-", dir="/var/tmp")
        try:
            ended = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation",
                                    "private", "sh", "-c", '"$@" & wait $!', "init", sys.executable, __file__,
                                    "--unshared", f"{folder}:{packages or ''}", *sys.argv[1:]], check=False)
            return ended.returncode
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    folder, packages = asked.unshared.split(":")
    os.chmod(folder, 0o755)  # munge checks that everybody may reach its socket
    if packages:
        mount("-t", "overlay", "overlay", "-o", f"lowerdir={packages}/usr:/usr", "/usr")
    for shared in asked.share:
        Path(shared).mkdir(parents=True, exist_ok=True)
    nodes = SlurmNodes(folder, asked.hide, asked.share, asked.set)
    try:
        nodes.start()
        return nodes.call(asked.command)
    finally:
        nodes.stop()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
