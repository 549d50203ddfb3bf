"""The numbers of explain.py as a conclusion, tables and sentences. All text follows from them."""

import textwrap

import cells as selection
import intervals
import wording
from wording import THIN

WIDTH = 100
PART_NAMES = {
    "forward": "forward",
    "backward": "backward",
    "sparsify": "sparsification",
    "exposed_communication": "exposed communication",
    "decompress": "decompression",
    "update": "update",
    "other": "other",
}
UNITS_SHOWN = 8
# Of what a part explains: less is not worth a clause.
WORTH_SAYING = 0.1
ENOUGH = 0.75


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


def _part(found, name):
    return next(part for part in found["parts"] if part["name"] == name)


def _became(found):
    """ "44 exchanges became 3, and 1.2 MB sent 55 kB", where these differ."""
    of, over = found["of"]["facts"], found["over"]["facts"]
    said = []
    if of["exchanges"] and over["exchanges"]:
        if abs(of["exchanges"] / over["exchanges"] - 1) > 0.05:
            said.append(
                f"{_some(over['exchanges'], 'exchange')} a step became "
                f"{wording.count(of['exchanges'])}"
            )
        else:
            said.append(f"both make {_some(of['exchanges'], 'exchange')} a step")
    if of["sent_bytes"] and over["sent_bytes"]:
        if abs(of["sent_bytes"] / over["sent_bytes"] - 1) > 0.05:
            said.append(
                f"{wording.quantity(over['sent_bytes'], 'B')} sent became "
                f"{wording.quantity(of['sent_bytes'], 'B')}"
            )
        else:
            said.append(f"{wording.quantity(of['sent_bytes'], 'B')} are sent by each")
    return " and ".join(said)


def _beside(found):
    """What of each ran beside backward; "" where spans do not say."""
    beside = [found[side]["traces"]["beside_backward"] for side in ("of", "over")]
    if None in beside:
        return ""
    words = f"exchanges run beside it for {_ms(beside[0]['exchanges'])} against {_ms(beside[1]['exchanges'])}"
    if beside[0]["lanes"] or beside[1]["lanes"]:
        words += (
            f", work of other lanes for {_ms(beside[0]['lanes'])} "
            f"against {_ms(beside[1]['lanes'])}"
        )
    return words


def _mostly(found):
    """ "wfbp waits mostly for unit 42", of the side that waits longer."""
    part = _part(found, "exposed_communication")
    side = found["of" if part["of"] > part["over"] else "over"]
    waits, whole = side["traces"]["waits"], side["traces"]["exposed_seconds"]
    if not waits or waits[0]["seconds"] < 0.5 * whole:
        return ""
    return f"{side['name']} waits mostly for {_where(waits[0], side)}"


def _cause(found, part):
    if part == "exposed_communication":
        return "; ".join(text for text in (_became(found), _mostly(found)) if text)
    if part == "backward":
        return _beside(found)
    beside = [found[side]["traces"]["beside_backward"] for side in ("of", "over")]
    if part == "sparsify" and None not in beside:
        lanes = [each["other_lanes_sparsify"] for each in beside]
        if any(lanes):
            return f"other lanes sparsify for {_ms(lanes[0])} against {_ms(lanes[1])}"
    return ""


def conclusion(found):
    """One sentence, or two where something acts against the rest."""
    of, over, step = found["of"]["name"], found["over"]["name"], found["step"]
    change = step["difference"]["value"]
    verb = "shorter" if change < 0 else "longer"
    noise = within_noise(found)
    if change == 0:
        return f"{of} and {over} take the same {_ms(step['of'])} a step."
    if noise and step["difference"]["low"] is not None:
        head = (
            f"{of} and {over} cannot be told apart: {of}'s step is {_ms(abs(change))} {verb}, which "
            f"is within noise ({100 * intervals.CONFIDENCE:.0f}{THIN}% interval "
            f"{_bounds(found, step['difference'])} contains 0)"
        )
    else:
        faster = step["over"] / step["of"] - 1
        percent = 100 * (faster if change < 0 else step["of"] / step["over"] - 1)
        how = "faster than" if change < 0 else "slower than"
        head = f"{of} is {percent:.1f}{THIN}% {how} {over}"
        if noise:
            head += (
                " by one block each, which may be noise"
                if found["paired"]
                else ", without an interval"
            )
    if found["unlike_in"].get("mode"):
        head += f" (unlike numbers: {found['of']['mode']} against {found['over']['mode']})"
    same = [part for part in found["parts"] if part["difference"]["value"] * change > 0]
    same.sort(key=lambda part: -abs(part["difference"]["value"]))
    total = sum(part["difference"]["value"] for part in same)
    clauses, covered = [], 0.0
    for part in same:
        if covered >= ENOUGH * abs(total) or len(clauses) == 3:
            break
        value, name = abs(part["difference"]["value"]), PART_NAMES[part["name"]]
        cause = _cause(found, part["name"])
        if value > 1.02 * abs(change) and not clauses:  # the rest acts against it
            clause = f"{name} alone is {_ms(value)} {verb}"
        else:
            clause = f"{_ms(value)} of {_ms(abs(change))} come from {name}"
            if clauses:
                clause = f"{_ms(value)} from {name}"
        clauses.append(clause + (f" ({cause})" if cause else ""))
        covered += value
    against = [
        part
        for part in found["parts"]
        if part["difference"]["value"] * change < 0
        and abs(part["difference"]["value"]) > WORTH_SAYING * abs(change)
    ]
    sentence = f"{head}: {', '.join(clauses)}."
    if against:
        against.sort(key=lambda part: -abs(part["difference"]["value"]))
        lost = [
            f"{_ms(abs(part['difference']['value']))} of {PART_NAMES[part['name']]}"
            + (f" ({cause})" if (cause := _cause(found, part["name"])) else "")
            for part in against
        ]
        listed = ", ".join(lost[:-1]) + (" and " if lost[1:] else "") + lost[-1]
        sentence += f" Against that stand{'s' if len(lost) == 1 else ''} {listed}."
    return sentence


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
    return f"{dense}{len(names)}: {first}, {_some(tensors['elements'], 'element')}"


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


def _seen(traces, side):
    ranks = traces["ranks"]
    return (
        f"step{'s' if len(traces['steps']) > 1 else ''} {', '.join(map(str, traces['steps']))} of "
        f"{wording.blocks([traces['blocks']])}, of "
        f"ranks {ranks[0]} to {ranks[-1]} of {side['workers']} the slowest in each step"
        if traces["blocks"]
        else "no spans were kept"
    )


def _waits(found):
    text = []
    for key in ("of", "over"):
        side, traces = found[key], found[key]["traces"]
        exposed = _part(found, "exposed_communication")[key]
        if not traces["blocks"]:
            text.append(f"{side['name']}: no spans were kept, so that waits have no unit.")
        elif traces["exposed_seconds"] <= 0:
            text.append(
                f"{side['name']}: the compute lane never waited in the traced steps "
                f"({_seen(traces, side)}); {_ms(exposed)} around the median of all steps."
            )
        else:
            text.append(_waits_table(side))
            text.append(
                f"{side['name']}: {_ms(traces['exposed_seconds'])} in the traced steps "
                f"({_seen(traces, side)})"
                + (
                    f", {_ms(traces['until_last_rank_seconds'])} of it until the last rank came"
                    if traces["until_last_rank_seconds"]
                    else ""
                )
                + f"; {_ms(exposed)} around the median of all steps."
                + (
                    f" Plans differ between blocks ({traces['plans']}): tensors are those of the "
                    "first block that waited."
                    if traces["plans"] > 1
                    else ""
                )
            )
    return text


def _contention(found):
    part = _part(found, "backward")
    value, bounds = part["difference"]["value"], _bounds(found, part["difference"])
    if abs(value) < 1e-3 * part["over"]:
        words = "Backward takes equally long (within 0.1\u202f%)"
    else:
        words = (
            f"Backward is {_ms(abs(value))} {'shorter' if value < 0 else 'longer'} in "
            f"{found['of']['name']}"
        )
        words += f", interval {bounds}" if bounds != wording.NONE else ", without an interval"
    beside = _beside(found)
    words += f"; {beside}." if beside else "."
    side = found["of"]
    if side["cores"] and side["mode"] != "modelled":
        words += (
            f" {side['threads']} threads of ranks have {side['cores']} cores, which communication "
            "threads and other lanes share: a backward pass that works on the same tensors and "
            "takes longer has lost them to these, or to the machine's other load. Which, a trial "
            "does not record."
        )
    elif side["mode"] == "modelled":
        words += " The model lets lanes and exchanges of a machine share its cores."
    return words


def obtained(found):
    """How the numbers came about, and what the trials do not record."""
    said = []
    for mode in dict.fromkeys(found[side]["mode"] for side in ("of", "over")):
        machines = {
            found[side]["hardware"] for side in ("of", "over") if found[side]["mode"] == mode
        }
        said.append(
            f"{mode.capitalize()}: {wording.MODE_MEANS[mode]}; {' and '.join(sorted(machines))}."
        )
    if found["unlike_in"].get("mode"):
        said.append(
            f"Attention: {found['of']['name']} is {found['of']['mode']}, {found['over']['name']} is "
            f"{found['over']['mode']}. These are unlike numbers: their difference is also how far "
            "the model or the slowed link is from the other."
        )
    ignored = selection.TWIN_IGNORES if "mode" in found["unlike_in"] else {"mode"}
    other = [key for key in found["unlike_in"] if key not in ignored]
    if other:
        said.append(
            "The cells also differ in "
            + "; ".join(
                f"{key} ({selection.canonical(found['unlike_in'][key][0])} against "
                f"{selection.canonical(found['unlike_in'][key][1])})"
                for key in other
            )
            + "."
        )
    counts = [len(found[side]["trials"]) for side in ("of", "over")]
    preliminary = min(counts) < intervals.PRELIMINARY_BELOW and within_noise(found) is not None
    said.append(
        wording.blocks(counts)
        + (", paired" if found["paired"] and max(counts) > 1 else "")
        + ("; not paired, so without an interval" if not found["paired"] else "")
        + ("; computed, so without an interval" if within_noise(found) is None else "")
        + (f"; preliminary, {intervals.PRELIMINARY_BELOW} make a result" if preliminary else "")
        + ". "
        + "Parts are of each step's slowest rank, means over the third of the measured steps around "
        "the median ("
        + " and ".join(
            dict.fromkeys(
                f"{found[side]['middle_steps'][-1]} of {found[side]['steps'][-1]}"
                for side in ("of", "over")
            )
        )
        + ") and then over blocks, and add up to the step."
    )
    for key in ("of", "over"):
        if found[key]["blocks_left_out"]:
            said.append(
                f"Blocks of {found[key]['name']} that the other side lacks are left out: "
                f"{', '.join(map(str, found[key]['blocks_left_out']))}."
            )
    remainder, wait = found["remainder"], found["align_wait"]
    said.append(
        "Other is what no span of the compute lane covers: dispatch, reactions, a wait after the "
        "last decompression"
        + (
            f"; of it {_of_ms(remainder['of'], '+')} and {_of_ms(remainder['over'], '+')} ms are the "
            "median less the mean of the steps around it"
            if remainder["of"] or remainder["over"]
            else ""
        )
        + "."
    )
    if wait["of"] or wait["over"]:
        said.append(
            f"Waiting for other ranks to agree on a buffer takes {_ms(wait['of'])} and "
            f"{_ms(wait['over'])}; it lies beside backward or in exposed communication and is no "
            "part of the sum."
        )
    if within_noise(found) and found["step"]["difference"]["low"] is None:
        said.append(
            "Middle halves of the steps: "
            + " and ".join(
                f"{_ms(found[side]['quartiles'][0])} to {_ms(found[side]['quartiles'][1])} "
                f"({found[side]['name']})"
                for side in ("of", "over")
            )
            + "."
        )
    return said


def _not_recorded(found):
    timed = {found["of"]["mode"], found["over"]["mode"]} != {"modelled"}
    said = ["what an exchange does inside (rounds, queues of a link)"]
    if timed:
        said.append(
            "which core a thread had; when ranks stood at the same instant (the clocks of ranks are "
            "not compared: the last to come is taken to be the one whose exchange lasts least)"
        )
    labels = [
        wait for side in ("of", "over") for wait in found[side]["traces"]["waits"] if wait["unit"]
    ]
    if any(wait["tensors"] is None for wait in labels):
        said.append("which tensors a buffer that is filled at run time holds")
    return f"Not recorded: {'; '.join(said)}."


def words(found):
    """The whole text."""
    fill = lambda text: "\n".join(textwrap.wrap(text, WIDTH, break_on_hyphens=False))  # noqa: E731
    blocks = [fill(conclusion(found)), _parts_table(found)]
    blocks += [fill(text) for text in obtained(found)]
    blocks.append("### Exposed communication, by what the compute lane waited for")
    blocks += [text if text.startswith("|") else fill(text) for text in _waits(found)]
    blocks += [fill(_contention(found)), fill(_not_recorded(found))]
    return "\n\n".join(blocks) + "\n"
