"""Pictures as SVG, in one style that reads on light and on dark pages.

Lines and text have the color of the text around them (`currentColor`): on the site pictures are
part of the page, and elsewhere the style in the file follows the reader's system.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

BLUE, ORANGE, GREEN, GRAY = "#3d85c6", "#e07b1f", "#2f9e6e", "#8a929b"
STYLE = (
    "<style>svg{color:#24292f;font:14px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',"
    "sans-serif}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
)


class Picture:
    """A picture that is drawn piece by piece."""

    def __init__(self, width: int, height: int, title: str) -> None:
        """Begin with nothing on it; the title is what readers hear who do not see it."""
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def text(  # noqa: PLR0913
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "middle",
        size: int = 14,
        color: str = "currentColor",
        bold: bool = False,
        soft: bool = False,
    ) -> None:
        """Write a line."""
        weight = ' font-weight="600"' if bold else ""
        faint = ' opacity="0.75"' if soft else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{color}"'
            f"{weight}{faint}>{escape(text)}</text>"
        )

    def box(  # noqa: PLR0913
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *lines: str,
        color: str = BLUE,
        fill: float = 0.12,
    ) -> None:
        """Draw a box with lines of text in it, the first of them bold."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" '
            f'fill="{color}" fill-opacity="{fill:g}" stroke="{color}" stroke-width="1.5"/>'
        )
        top = y + height / 2 + 5 - 9.5 * (max(len(lines), 1) - 1)
        for number, line in enumerate(lines):
            first = number == 0
            size = 14 if first else 12
            self.text(x + width / 2, top + 19 * number, line, size=size, bold=first, soft=not first)

    def arrow(  # noqa: PLR0913
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        color: str = "currentColor",
        dashed: bool = False,
    ) -> None:
        """Draw an arrow from one point to another."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1e-9)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 9 * ux, y2 - 9 * uy
        tip = (
            f"{x2:g},{y2:g} {bx - 4 * uy:.1f},{by + 4 * ux:.1f} {bx + 4 * uy:.1f},{by - 4 * ux:.1f}"
        )
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{bx:.1f}" y2="{by:.1f}" stroke="{color}" '
            f'stroke-width="1.5"{dash}/><polygon points="{tip}" fill="{color}"/>'
        )

    def line(self, points: Sequence[tuple[float, float]], color: str, width: float = 2.5) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:g}" '
            'stroke-linejoin="round" stroke-linecap="round"/>'
        )

    def rule(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Draw a thin line of a grid."""
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="currentColor" '
            'stroke-opacity="0.18"/>'
        )

    def dot(self, x: float, y: float, color: str, radius: float = 5) -> None:
        """Draw a dot."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{color}"/>')

    def bar(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """Draw a bar."""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
            f'fill="{color}"/>'
        )

    def finish(self) -> str:
        """The file."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
        head += f'width="{self.width}" role="img" aria-label="{escape(self.title)}">'
        return (
            head
            + STYLE
            + f"<title>{escape(self.title)}</title>"
            + "".join(self._parts)
            + "</svg>\n"
        )
