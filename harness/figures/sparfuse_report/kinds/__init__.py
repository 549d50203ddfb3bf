"""Lists the kinds of figures that an experiment file may ask for: one line each.

A kind is a function of the experiment, one of its parts, the figure's entry in the experiment file
and the styles of methods. It returns a Drawn, or raises NoData where no trial counts yet.
"""

from sparfuse_report.kinds import (
    ablation,
    agreement,
    bars,
    convergence,
    gantt,
    grouped,
    prediction,
    scaling,
    sensitivity,
    slopes,
    sweep,
    time_to_target,
    waiting,
)

KINDS = {
    "convergence": convergence.convergence,
    "time_to_target": time_to_target.time_to_target,
    "grouped_bars": grouped.grouped_bars,
    "breakdown": bars.breakdown,
    "gantt": gantt.gantt,
    "scaling": scaling.scaling,
    "slopes": slopes.slopes,
    "prediction": prediction.prediction,
    "bytes": bars.bytes_per_step,
    "waiting": waiting.waiting,
    "dual_line": sweep.dual_line,
    "normalised_bars": grouped.grouped_bars,
    "sensitivity": sensitivity.sensitivity,
    "ablation": ablation.ablation,
    "agreement": agreement.agreement,
}
