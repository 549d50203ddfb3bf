"""Reads trials over several hosts with the names that their records number."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import program  # noqa: E402  (found by the path above)


def read_trial(path):
    """The trial.json at `path`, with private.json's host names in place of host0, host1, ..."""
    trial = program.read_trial(path)
    private = path.with_name("private.json")
    names = {}
    if private.exists():
        facts = json.loads(private.read_text())
        names = {f"host{number}": name for number, name in enumerate(facts.get("hosts", []))}

    def named(value):
        if isinstance(value, dict):
            return {names.get(key, key): named(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [named(inner) for inner in value]
        return names.get(value, value) if isinstance(value, str) else value

    return named(trial)
