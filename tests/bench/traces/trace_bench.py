#!/usr/bin/env python3
"""Times `sparfuse trace` on a large trace: MB of JSON a CPU second, and resident memory.

  trace_bench.py PATH/TO/sparfuse FOLDER [MB]

FOLDER gets a trace of so many MB (default 1000, removed at the end): the two steps of the test's
hand-gpu-ddp.json again and again, with times, launches and steps of their own. Its facts must be those of
the two steps. Goals: 60 MB a CPU second, and 1 GB of memory for 10 million events.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "bench" / "store"))
from store_bench import measure  # noqa: E402

HAND = ROOT / "tests" / "harness" / "traces" / "cases" / "hand-gpu-ddp.json"
IDS = ("correlation", "External id")  # each step needs launches of its own


def write(path, megabytes):
    """Writes the trace, and returns how many events it has."""
    hand = json.loads(HAND.read_text())
    steps = [int(event["name"].split("#")[1]) for event in hand["traceEvents"]
             if event["name"].startswith("ProfilerStep#")]  # fmt: skip
    count = 0
    with path.open("w") as out:
        head = {key: value for key, value in hand.items() if key != "traceEvents"}
        out.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        repeat = 0
        while out.tell() < 1e6 * megabytes:
            for event in hand["traceEvents"]:
                made = dict(event, ts=round(event["ts"] + 2000 * repeat, 3))
                if made["name"].startswith("ProfilerStep#"):
                    number = int(made["name"].split("#")[1])
                    made["name"] = f"ProfilerStep#{number + len(steps) * repeat}"
                args = made.get("args", {})
                made["args"] = {key: value + 1000 * repeat if key in IDS else value
                                for key, value in args.items()}  # fmt: skip
                out.write((",\n" if count else "") + json.dumps(made))
                count += 1
            repeat += 1
        out.write("]}\n")
    return count


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    megabytes = float(sys.argv[3]) if len(sys.argv) > 3 else 1000
    path = folder / "trace_bench.json"
    try:
        events = write(path, megabytes)
        size = path.stat().st_size / 1e6
        seconds, memory, cpu = measure([program, "trace", "--json", str(path)])
        facts = json.loads(subprocess.run([program, "trace", "--json", str(path)], check=True,
                                          capture_output=True).stdout)  # fmt: skip
    finally:
        path.unlink(missing_ok=True)
    assert facts["forward_us"]["median"] == 150, facts["forward_us"]
    assert [tensor["ready_us"] for tensor in facts["tensors"]] in ([40, 140], [40, 145], [40, 150])
    print(f"{size:.0f} MB, {events} events: {seconds:.1f} s, CPU {cpu:.1f} s "
          f"({size / cpu:.0f} MB/s), {memory:.0f} MB resident ({1e6 * memory / events:.0f} bytes an event)")


if __name__ == "__main__":
    main()
