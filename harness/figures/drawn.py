"""What a figure kind hands back."""

from dataclasses import dataclass


@dataclass
class Drawn:
    figure: object  # matplotlib's
    title: str
    caption: str
    handles: list  # of the legend, which style.finish places
