"""Pictures as SVG: who waits for whom, and what every tile and channel did over time."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, Protocol

_COLOURS: Final = ("#3b6ea8", "#c8762b", "#4c8f4f", "#a8445a", "#7a5ba6", "#8a6d3b", "#3f8f8f", "#777777")
_ALARM: Final = "#b00020"


class Spanned(Protocol):
    """Something with a beginning and an end, in cycles."""

    begin: float
    end: float
    label: str


class _Drawing:
    def __init__(self, width: float, height: float) -> None:
        size = f'width="{width:.0f}" height="{height:.0f}"'
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
            '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">',
            '<path d="M0,0 L8,4 L0,8 z"/></marker></defs><rect width="100%" height="100%" fill="white"/>',
        ]

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", colour: str = "black", bold: bool = False) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>')

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>')

    def arrow(self, start: tuple[float, float], end: tuple[float, float], words: str, colour: str) -> None:
        ends = f'x1="{start[0]:.0f}" y1="{start[1]:.0f}" x2="{end[0]:.0f}" y2="{end[1]:.0f}"'
        self._parts.append(f'<line {ends} stroke="{colour}" marker-end="url(#tip)"><title>{escape(words)}</title></line>')

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def wait_graph(edges: Sequence[tuple[str, str, tuple[str, ...]]], cycle: set[str]) -> str:
    """Agents on a circle, an arrow from each to whom it waits for; the cycle in red."""
    names = sorted({name for who, _, whom in edges for name in (who, *whom)})
    radius = 60.0 + 26 * len(names)
    centre = radius + 210, radius + 40
    angles = {name: 2 * math.pi * index / len(names) for index, name in enumerate(names)}
    place = {name: (centre[0] + radius * math.cos(a), centre[1] + radius * math.sin(a)) for name, a in angles.items()}
    drawing = _Drawing(2 * centre[0], 2 * centre[1])
    for who, what, whom in edges:
        for other in whom:
            drawing.arrow(place[who], place[other], what, _ALARM if who in cycle and other in cycle else "#888888")
    for name, (x, y) in place.items():
        drawing.text(x, y - 4, name, anchor="middle", colour=_ALARM if name in cycle else "black")
    return str(drawing)


def timeline(title: str, lanes: Mapping[str, Sequence[Spanned]], microseconds_a_cycle: float) -> str:
    """One row a lane, a bar a span, its busy share at the end, a scale in predicted microseconds."""
    left, width, row = 130.0, 900.0, 16.0
    spans = [span for lane in lanes.values() for span in lane]
    begin = min((span.begin for span in spans), default=0.0)
    length = max(max((span.end for span in spans), default=1.0) - begin, 1.0)
    scale = width / length
    labels = sorted({_kind(span.label) for span in spans})
    colours = {label: _COLOURS[index % len(_COLOURS)] for index, label in enumerate(labels)}
    height = 76 + row * len(lanes)
    drawing = _Drawing(left + width + 60, height)
    drawing.text(8, 16, title, bold=True)
    for index, (name, lane) in enumerate(lanes.items()):
        y = 30 + row * index
        drawing.text(left - 6, y + 11, name, anchor="end")
        drawing.text(left + width + 6, y + 11, f"{sum(span.end - span.begin for span in lane) / length:.0%}")
        for first, last, label in _drawn(lane, scale):
            drawing.bar(left + (first - begin) * scale, y + 2, max((last - first) * scale, 0.4), row - 4, colours[label])
    for step in range(6):
        drawing.text(left + width * step / 5, height - 26, f"{length * step / 5 * microseconds_a_cycle:.0f} us", anchor="middle")
    for index, label in enumerate(labels):
        drawing.bar(left + 150 * index, height - 16, 10, 10, colours[label])
        drawing.text(left + 150 * index + 14, height - 7, label)
    return str(drawing)


def _kind(label: str) -> str:
    return "stream" if label.endswith(" words") else label


def _drawn(spans: Sequence[Spanned], scale: float) -> list[tuple[float, float, str]]:
    """Spans of one kind that a reader could not tell apart, as one."""
    drawn: list[tuple[float, float, str]] = []
    for span in spans:
        label = _kind(span.label)
        if drawn and drawn[-1][2] == label and (span.begin - drawn[-1][1]) * scale < 0.3:
            drawn[-1] = (drawn[-1][0], span.end, label)
        else:
            drawn.append((span.begin, span.end, label))
    return drawn
