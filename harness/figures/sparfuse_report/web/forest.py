"""Draws ratios with their intervals on a logarithmic scale that the rows of a table share."""

import math

from markupsafe import Markup

from sparfuse_report import marks

WIDTH, HEIGHT, EDGE = 150, 14, 6  # pixels
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FINE = (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.7)


class Scale:
    """A scale over all values, and over all intervals that are not far longer than the values' range."""

    def __init__(self, ratios):
        least, most = marks.limits([(each.value, each.low, each.high) for each in ratios if each], 0.3)
        self.low, self.high = least / 1.02, most * 1.02

    def at(self, value):
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return round(EDGE + (WIDTH - 2 * EDGE) * share, 1)

    def ticks(self):
        """A few round numbers, 1 among them, that do not touch."""
        inside = [tick for tick in TICKS if self.low <= tick <= self.high]
        if len(inside) < 3:
            inside = [tick for tick in FINE if self.low <= tick <= self.high]
        kept = [1]
        for tick in sorted(inside, key=lambda tick: -abs(math.log(tick))):
            if all(abs(self.at(tick) - self.at(other)) >= 24 for other in kept):
                kept.append(tick)
        return sorted(kept)

    def axis(self):
        return _svg(
            f"<text x='{self.at(tick)}' y='10' text-anchor='middle'>{tick:g}</text>" for tick in self.ticks()
        )

    def drawn(self, *ratios, kind=""):
        """The drawing of one ratio, or of two above each other in the looks `first` and `second`."""
        if not any(ratios):
            return ""
        looks, heights = ("first", "second"), (4, HEIGHT - 4)
        if len(ratios) == 1:
            looks, heights = (kind,), (HEIGHT / 2,)
        drawn = [self._one()]
        for ratio, y, look in zip(ratios, heights, looks):
            if ratio:
                drawn.append(self._mark(ratio, y, look))
        return _svg(drawn)

    def strip(self, ratios):
        """The drawing of all ratios on one line."""
        middle = HEIGHT / 2
        dots = [f"<circle class='dot' cx='{self.at(each.value)}' cy='{middle:g}' r='2.5'/>" for each in ratios]
        return _svg([self._one(), *dots]) if ratios else ""

    def _one(self):
        return f"<path class='one' d='M{self.at(1)} 0V{HEIGHT}'/>"

    def _mark(self, ratio, y, look):
        out = []
        if ratio.low is not None:
            out.append(f"<path d='M{self.at(ratio.low)} {y}H{self.at(ratio.high)}'/>")
            if ratio.low < self.low:
                out.append(f"<path d='M{EDGE} {y}l4 -3v6z'/>")
            if ratio.high > self.high:
                out.append(f"<path d='M{WIDTH - EDGE} {y}l-4 -3v6z'/>")
        x = self.at(ratio.value)
        if look in ("modelled", "second"):
            out.append(f"<path class='point' d='M{x} {y - 4}l4 4l-4 4l-4 -4z'/>")
        else:
            out.append(f"<circle class='point' cx='{x}' cy='{y}' r='3'/>")
        return f"<g class='{look}'>{''.join(out)}</g>"


def _svg(drawn):
    """An SVG of marks. They are made of numbers alone, without any text from trials."""
    return Markup(
        f"<svg class='forest' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' "
        f"aria-hidden='true'>{''.join(drawn)}</svg>"
    )
