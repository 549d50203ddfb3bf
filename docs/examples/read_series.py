"""Reads a trial's steps with pandas:  read_series.py results/trials/.../TRIAL"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

trial = Path(sys.argv[1])
steps = pd.DataFrame(np.load(trial / "steps.npy"))  # a row a step and rank
slowest = steps[steps["measured"] == 1].groupby("step")["step_seconds"].max()

metrics = json.loads((trial / "trial.json").read_text())["metrics"]
print(f"step time: median {slowest.median()} s, as a metric {metrics['step_seconds']['value']} s")
print(steps.groupby("rank")[["payload_bytes", "sent_bytes", "exchanges"]].mean())
