"""Writes the verdicts of claims: a row a claim, worst first, with its settings beside one another."""

import itertools

from sparfuse_report.page import escape, plain_table

MANY = 12  # settings of a claim; of more, the row has their marks alone

MARKS = {  # what a verdict begins with, the worst first -> mark, class, meaning
    "invalid": ("!", "alarm", "a correctness check failed"),
    "not reproduced": ("✗", "alarm", "the other direction"),
    "does not hold": ("✗", "alarm", "the whole interval is on the other side"),
    "inconclusive": ("?", "part", "the interval has both answers in it"),
    "direction only": ("≈", "part", "the stated direction, another size"),
    "not decided": ("~", "part", "the trials that it needs were disturbed"),
    "not run": ("–", "quiet", "a cell has no trial that counts"),
    "calibration": ("c", "quiet", "the model was fitted to this number: not judged"),
    "consistent": ("✓", "good", "the same of a modelled or emulated number"),
    "reproduced": ("✓", "good", "the interval is within 8 % of the stated number"),
    "holds": ("✓", "good", "the whole interval is on the expected side"),
}
BADNESS = {word: place for place, word in enumerate(MARKS)}


def mark_of(claim):
    return next((word for word in MARKS if claim["verdict"].startswith(word)), "not run")


def badness_of(claim):
    return BADNESS[mark_of(claim)]


def counted(claims):
    """[(what verdicts begin with, how many)], the worst first."""
    words = [mark_of(claim) for claim in claims]
    return [(word, words.count(word)) for word in MARKS if word in words]


def summary(claims):
    return ", ".join(f"{MARKS[word][0]} {n} {word}" for word, n in counted(claims))


def _setting_of(claim, others):
    """What tells a claim from those of the same sentence: the combination that for_each gives it,
    else those keys of its cells in which they differ."""
    if claim["setting"]:
        return claim["setting"]
    words = []
    for side in ("of", "over"):
        for key, value in claim[side].items():
            if any(other[side].get(key) != value for other in others):
                words.append(str(value) if isinstance(value, str) else f"{key} {value}")
    return ", ".join(dict.fromkeys(words)) or claim["expected"]


def _value_of(claim):
    return claim["ours"].split(" [")[0]


def _cells_of_settings(claims):
    """The settings of one claim as a list of marks."""
    out = []
    for claim in claims:
        mark, look, _ = MARKS[mark_of(claim)]
        setting, value = escape(_setting_of(claim, claims)), escape(_value_of(claim))
        if len(claims) > MANY:
            out.append(f"<li class='{look}' title='{setting}: {value}'>{mark}</li>")
        else:
            out.append(f"<li class='{look}'>{mark} {setting} <b>{value}</b></li>")
    return f"<ul class='settings'>{''.join(out)}</ul>"


def _only_one(values, otherwise):
    found = list(dict.fromkeys(values))
    return found[0] if len(found) == 1 else otherwise


def _range(values):
    values = list(values)
    return " to ".join(dict.fromkeys([f"{min(values):.3g}", f"{max(values):.3g}"]))


def _details(claims):
    columns = ["setting", "expected", "ours (95 % interval)", "n", "mode", "verdict"]
    rows = [
        [_setting_of(claim, claims)]
        + [str(claim[key]) for key in ("expected", "ours", "n", "mode", "verdict")]
        for claim in claims
    ]
    return (
        f"<details><summary>{len(claims)} settings: {escape(summary(claims))}</summary>"
        f"{plain_table(columns, rows)}</details>"
    )


def _row(claims):
    """One row for what a sentence says of one cell, or of several; `claims` the worst first."""
    first = claims[0]
    mark, look, _ = MARKS[mark_of(first)]
    facts = [
        first["metric"],
        "expected " + _only_one((claim["expected"] for claim in claims), "by setting"),
        ", ".join(dict.fromkeys(claim["mode"] for claim in claims)),
        "n = " + _range(claim["n"] for claim in claims),
    ]
    if len(claims) == 1:
        sentence = first["quote"]
        said = f"<p>{escape(first['ours'])}</p><p class='{look}'>{escape(first['verdict'])}</p>"
    else:
        sentence = first["sentence"]
        said = _cells_of_settings(claims) + _details(claims)
    return (
        f"<tr><td class='mark {look}'>{mark}</td><td class='claim'>{escape(sentence)}"
        f"<p class='quiet'>{escape(' · '.join(facts))}</p></td><td>{said}</td></tr>"
    )


def _rows(parts):
    """A row a sentence and metric of a part, the worst first; so are the settings of each."""
    said = [
        sorted(same, key=badness_of)
        for claims in parts
        for _, same in itertools.groupby(
            claims, key=lambda claim: (claim["sentence"], claim["metric"])
        )
    ]
    return "".join(_row(same) for same in sorted(said, key=lambda same: badness_of(same[0])))


def table(groups):
    """Of [(heading in HTML, [claims of a part])]: how many verdicts there are of each kind, a row a
    claim, what the marks mean."""
    everything = [claim for _, parts in groups for claims in parts for claim in claims]
    body = "".join(
        f"<tr class='group'><td colspan='3'>{heading}</td></tr>{_rows(parts)}"
        for heading, parts in groups
    )
    meanings = " ".join(
        f"{MARKS[word][0]} {word}: {escape(MARKS[word][2])}." for word, _ in counted(everything)
    )
    return (
        f"<p><b>{len(everything)} claim{'s' if len(everything) != 1 else ''}:</b> "
        f"{escape(summary(everything))}.</p><table class='verdicts'><thead><tr>"
        "<th scope='col' class='mark'></th><th scope='col'>claim</th>"
        "<th scope='col'>ours, verdict</th></tr></thead>"
        f"<tbody>{body}</tbody></table><p class='notes'>{meanings}<br>"
        "Ratios are geometric means of paired blocks, differences and values are means, each "
        "with its 95 % t interval. Below five blocks a verdict is preliminary.</p>"
    )
