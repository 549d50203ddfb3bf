"""Reads trials with what their private.json keeps apart from them."""

import json


def read_trial(path):
    """The trial.json at `path`, with the launch's words and variables and what a failure said."""
    trial = json.loads(path.read_text())
    file = path.with_name("private.json")
    apart = json.loads(file.read_text()) if file.exists() else {}
    trial["argv"] = apart.get("argv", [])
    trial["environment"] = trial.get("environment", {}) | apart.get("environment", {})
    if trial["failure"]:
        trial["failure"] |= {"message": apart.get("failure", ""), "log_tail": apart.get("log_tail", "")}
    return trial
