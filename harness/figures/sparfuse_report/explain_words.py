"""Words what explain.py found: one line that concludes, then the numbers as tables."""

from sparfuse_report import cells as selection
from sparfuse_report import wording
from sparfuse_report.wording import THIN

PART_NAMES = {
    "forward": "forward",
    "backward": "backward",
    "sparsify": "sparsification",
    "exposed_communication": "exposed communication",
    "decompress": "decompression",
    "update": "update",
    "other": "other",
}
FACT_NAMES = {
    "exchanges": ("exchanges a step", ""),
    "messages_sent": ("messages sent", ""),
    "payload_bytes": ("payload", "B"),
    "sent_bytes": ("sent", "B"),
    "achieved_density": ("achieved density", ""),
}
UNITS_SHOWN = 8
INPUTS_SHOWN = 6


def _ms(seconds):
    return wording.quantity(seconds, "s") if seconds else f"0{THIN}s"


def _of_ms(seconds, sign=""):
    """In ms to two digits; nothing is minus 0."""
    return f"{round(1e3 * seconds, 2) + 0.0:{sign}.2f}"


def within_noise(found):
    """None where the numbers are computed; else whether the step's difference may be noise: with an
    interval, whether that contains 0; without one it always may."""
    if {found["of"]["mode"], found["over"]["mode"]} == {"modelled"}:
        return None
    difference = found["step"]["difference"]
    return difference["low"] is None or difference["low"] <= 0 <= difference["high"]


def _bounds(found, difference):
    """The interval in ms; none of computed numbers."""
    if difference["low"] is None or within_noise(found) is None:
        return wording.NONE
    return f"[{_of_ms(difference['low'], '+')}, {_of_ms(difference['high'], '+')}]{THIN}ms"


def _percent(part, whole):
    return f"{round(100 * part / whole):d}{THIN}%" if whole else wording.NONE


def _some(count, what):
    return f"{wording.count(count)} {what}{'s' if count != 1 else ''}"


def conclusion(found):
    """One line: which step is shorter, by how much, and the part that most of it comes from."""
    of, over, step = found["of"]["name"], found["over"]["name"], found["step"]
    change, noise = step["difference"]["value"], within_noise(found)
    if change == 0:
        return f"{of} and {over} take the same {_ms(step['of'])} a step."
    if noise and step["difference"]["low"] is not None:
        head = (
            f"{of} and {over} cannot be told apart: the interval of the difference, "
            f"{_bounds(found, step['difference'])}, contains 0"
        )
    else:
        ratio = step["over"] / step["of"] if change < 0 else step["of"] / step["over"]
        how = "faster" if change < 0 else "slower"
        head = f"{of} is {100 * (ratio - 1):.1f}{THIN}% {how} than {over}"
        if noise:
            head += ", by one block each" if found["paired"] else ", without an interval"
    if found["unlike_in"].get("mode"):
        head += f" (unlike numbers: {found['of']['mode']} against {found['over']['mode']})"
    sign = 1 if change > 0 else -1
    most = max(found["parts"], key=lambda part: sign * part["difference"]["value"])
    share = _ms(abs(most["difference"]["value"]))
    return f"{head}: {share} of {_ms(abs(change))} in {PART_NAMES[most['name']]}."


def _table(columns, rows, right):
    """Aligned for a terminal, and Markdown; `right` has the columns that are numbers."""
    widths = [max(len(str(row[i])) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells):
        aligned = [
            str(cell).rjust(width) if i in right else str(cell).ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths))
        ]
        return f"| {' | '.join(aligned)} |"

    rule = "|".join(
        "-" * (width + 1) + (":" if i in right else "-") for i, width in enumerate(widths)
    )
    return "\n".join([line(columns), f"|{rule}|", *map(line, rows)])


def _parts_table(found):
    of, over, step = found["of"]["name"], found["over"]["name"], found["step"]
    change = step["difference"]["value"]
    rows = []
    for part in [*found["parts"], step]:
        whole = part["name"] == "step"
        value = part["difference"]["value"]
        rows.append(
            [
                "step (median)" if whole else PART_NAMES[part["name"]],
                _of_ms(part["of"]),
                _of_ms(part["over"]),
                _of_ms(value, "+"),
                _percent(value, change),
                _bounds(found, part["difference"]),
            ]
        )
    return _table(
        ["ms a step", of, over, "difference", "share", "95 % interval of it"], rows, range(1, 6)
    )


def _facts_table(found):
    """What each side exchanges in a step, and what ran beside its backward pass."""
    rows = []
    for name, (words, unit) in FACT_NAMES.items():
        values = [found[side]["facts"][name] for side in ("of", "over")]
        if any(value is not None for value in values):
            rows.append([words, *(wording.quantity(value, unit) for value in values)])
    beside = [found[side]["traces"]["beside_backward"] for side in ("of", "over")]
    if None not in beside:
        for key, words in (
            ("exchanges", "exchanges beside backward, ms"),
            ("lanes", "other lanes beside backward, ms"),
            ("other_lanes_sparsify", "sparsification on other lanes, ms"),
        ):
            if any(each[key] for each in beside):
                rows.append([words, *(_of_ms(each[key]) for each in beside)])
    if found["align_wait"]["of"] or found["align_wait"]["over"]:
        waits = [_of_ms(found["align_wait"][side]) for side in ("of", "over")]
        rows.append(["agreeing on a buffer (beside the sum), ms", *waits])
    for position, words in enumerate(("lower quartile of the steps, ms", "upper quartile, ms")):
        ends = [_of_ms(found[side]["quartiles"][position]) for side in ("of", "over")]
        rows.append([words, *ends])
    return _table(["", found["of"]["name"], found["over"]["name"]], rows, (1, 2))


def _where(wait, side):
    label = wait["unit"] or "the exchange"
    before = (
        f"ranks still to come to {label}"  # a modelled exchange begins when all have
        if side["mode"] == "modelled"
        else f"nothing under way, before {label}"
    )
    return {
        "exchange": label,
        "negotiate": f"negotiation{' of ' + wait['unit'] if wait['unit'] else ''}",
        "local work": f"work of another lane: {wait['unit'] or 'unnamed'}",
        "other ranks": f"other ranks, before {label}",
        "before": before,
        "after": "nothing under way, after the last exchange",
    }[wait["for"]]


def _tensors(wait):
    tensors = wait["tensors"]
    if tensors is None:
        return wording.NONE
    names = tensors["names"]
    dense = "the dense of " if wait["unit"].endswith(", dense") else ""
    first = f"{names[0]} to {names[-1]}" if len(names) > 1 else names[0]
    text = f"{dense}{len(names)}: {first}, {_some(tensors['elements'], 'element')}"
    if "path" in tensors:
        text += f", by path {tensors['path']}"
    partitions = tensors.get("partitions")
    if partitions is None:
        return text
    how = f"sparsified in {_some(partitions, 'part')}" if partitions else "whole"
    return f"{text}, {how}"


def _waits_table(side):
    waits = [wait for wait in side["traces"]["waits"] if wait["seconds"] > 0]
    rows = []
    for wait in waits[:UNITS_SHOWN]:
        rows.append([_where(wait, side), [wait], _tensors(wait)])
    if waits[UNITS_SHOWN:]:
        rest = waits[UNITS_SHOWN:]
        rows.append([_some(len(rest), "other"), rest, ""])
    for row in rows:
        some = row.pop(1)
        late = sum(wait["until_last_rank_seconds"] for wait in some)
        row.insert(1, f"{1e3 * sum(wait['seconds'] for wait in some):.3f}")
        row.insert(2, wording.NONE if side["mode"] == "modelled" else f"{1e3 * late:.3f}")
    return _table([side["name"], "ms a step", "until the last rank came", "tensors"], rows, (1, 2))


def _waits(found):
    """A table a side: what the compute lane waited for in the steps that kept spans."""
    text = []
    for key in ("of", "over"):
        side, traces = found[key], found[key]["traces"]
        if not traces["blocks"]:
            text.append(f"{side['name']}: no spans were kept.")
        elif traces["exposed_seconds"] <= 0:
            text.append(f"{side['name']}: the compute lane never waited in the traced steps.")
        else:
            text.append(_waits_table(side))
        if traces["blocks"]:
            steps = ", ".join(map(str, traces["steps"]))
            text.append(f"(traced: step {steps} of {wording.blocks([traces['blocks']])})")
    return text


def _deciding(found):
    """Which inputs of a declared cluster decide between the two, and what would make them known."""
    deciding = found["deciding"]
    if not deciding:
        return []
    rows = [
        [
            each["input"],
            f"{each['value']:.4g} [{each['low']:.4g}, {each['high']:.4g}]",
            f"{100 * each['share']:.0f}{THIN}%",
            f"{each['ratio_low']:.3f}, {each['ratio_high']:.3f}"
            + (": turns the order" if each["turns"] else ""),
            each["measure"],
        ]
        for each in deciding["inputs"][:INPUTS_SHOWN]
    ]
    over, of = found["over"]["name"], found["of"]["name"]
    columns = ["which input decides", "declared", "share", f"{over} / {of}", "measure it with"]
    text = [_table(columns, rows, (2,))] if rows else []
    if rest := len(deciding["inputs"]) - len(rows):
        text.append(f"({_some(rest, 'more input')} with smaller shares)")
    return text + [f"hint: {hint}" for hint in deciding["hints"]]


def _exchanged(found):
    """What of two declared clusters makes the difference: an input at a time as the other has it."""
    exchanged = found.get("exchanged")
    if not exchanged:
        return []
    rows = [
        [each["what"], each["of"] or wording.NONE, each["over"] or wording.NONE, f"{each['factor']:.3g}x"]
        for each in exchanged[:INPUTS_SHOWN]
    ]
    of, over = found["of"]["name"], found["over"]["name"]
    columns = ["what the clusters differ in", of, over, "step, over that with the other's"]
    text = [_table(columns, rows, (1, 2, 3))]
    if rest := len(exchanged) - len(rows):
        text.append(f"({_some(rest, 'more input')} with smaller factors)")
    return text + ["Inputs act on each other: the factors do not multiply to the whole."]


def obtained(found):
    """How the numbers came about: a line each."""
    said = []
    for mode in dict.fromkeys(found[side]["mode"] for side in ("of", "over")):
        machines = {
            found[side]["hardware"] for side in ("of", "over") if found[side]["mode"] == mode
        }
        said.append(f"{mode}: {wording.MODE_MEANS[mode]}; {' and '.join(sorted(machines))}")
    ignored = {"mode", "cluster"} if "mode" in found["unlike_in"] else set()
    for key, (of, over) in found["unlike_in"].items():
        if key not in ignored:
            said.append(
                f"differs: {key} ({selection.canonical(of)} against {selection.canonical(over)})"
            )
    counts = [len(found[side]["trials"]) for side in ("of", "over")]
    words = [wording.blocks(counts)]
    if within_noise(found) is None:
        words.append("computed, so without an interval")
    elif not found["paired"]:
        words.append("not paired, so without an interval")
    else:
        words.append("paired")
        if min(counts) < found["preliminary_below"]:
            words.append("preliminary")
    said.append("; ".join(words))
    for side in ("of", "over"):
        if left_out := found[side]["blocks_left_out"]:
            said.append(f"blocks of {found[side]['name']} alone: {', '.join(map(str, left_out))}")
    return said


def words(found):
    """The whole text."""
    blocks = [conclusion(found), _parts_table(found), _facts_table(found)]
    blocks += [*_deciding(found), *_exchanged(found), *_waits(found)]
    blocks.append("\n".join(obtained(found)))
    return "\n\n".join(blocks) + "\n"
