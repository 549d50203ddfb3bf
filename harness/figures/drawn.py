"""What a figure kind hands back."""

from dataclasses import dataclass, field


@dataclass
class Drawn:
    figure: object  # matplotlib's
    title: str
    caption: str
    handles: list  # of the legend, which style.finish places
    tables: list = field(default_factory=list)  # of tables.Table: the figure's numbers
