"""Orders the verdicts of claims: a row a claim, worst first, with its settings beside one another."""

import itertools

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


def _only_one(values, otherwise):
    found = list(dict.fromkeys(values))
    return found[0] if len(found) == 1 else otherwise


def _range(values):
    values = list(values)
    return " to ".join(dict.fromkeys([f"{min(values):.3g}", f"{max(values):.3g}"]))


class Setting:
    """A claim of a row: what tells it from the others of its sentence, its value and mark."""

    def __init__(self, claim, others):
        self.claim, self._others, self.value = claim, others, _value_of(claim)
        self.mark, self.look, _ = MARKS[mark_of(claim)]

    @property
    def words(self):
        return _setting_of(self.claim, self._others)


class Row:
    """What a sentence says of one cell, or of several; `claims` the worst first."""

    def __init__(self, claims):
        first = claims[0]
        self.mark, self.look, _ = MARKS[mark_of(first)]
        self.sentence = first["quote" if len(claims) == 1 else "sentence"]
        self.facts = [
            first["metric"],
            "expected " + _only_one((claim["expected"] for claim in claims), "by setting"),
            ", ".join(dict.fromkeys(claim["mode"] for claim in claims)),
            "n = " + _range(claim["n"] for claim in claims),
        ]
        self.settings = [Setting(claim, claims) for claim in claims]
        self.many, self.summary = len(claims) > MANY, summary(claims)

    columns = ("setting", "expected", "ours (95 % interval)", "n", "mode", "verdict")

    @property
    def details(self):
        keys = ("expected", "ours", "n", "mode", "verdict")
        return [[each.words, *(each.claim[key] for key in keys)] for each in self.settings]


def rows(parts):
    """A row a sentence and metric of a part, the worst first; so are the settings of each."""
    said = [
        sorted(same, key=badness_of)
        for claims in parts
        for _, same in itertools.groupby(
            claims, key=lambda claim: (claim["sentence"], claim["metric"])
        )
    ]
    return [Row(same) for same in sorted(said, key=lambda same: badness_of(same[0]))]


class Judged:
    """Of [(address, name, more, [claims of a part])]: a group each, under a heading whose name leads
    to the address; how many verdicts there are of each kind, and what their marks mean."""

    def __init__(self, groups):
        self.claims = [claim for *_, parts in groups for claims in parts for claim in claims]
        self.summary = summary(self.claims)
        self.meanings = " ".join(
            f"{MARKS[word][0]} {word}: {MARKS[word][2]}." for word, _ in counted(self.claims)
        )
        self.groups = [(address, name, more, rows(parts)) for address, name, more, parts in groups]
