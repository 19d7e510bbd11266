"""Matrices of a page: tables whose cells are shaded, which need no script."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from html import escape

from rfa.lab.report.exhibit import Entry, Matrix, group
from rfa.lab.report.frames import paragraph
from rfa.lab.report.style import SHADES, Shading, shading


def html_matrices(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the matrices, picture by picture, each picture with the scale of its shades."""
    for picture in group(matrices, lambda matrix: matrix.view).values():
        shades = shading(picture)
        figures = "\n".join(_figure(matrix, shades) for matrix in picture)
        yield f'<div class="matrices">{_scale(picture[0].label, shades)}\n{figures}\n</div>'


def _scale(label: str, shades: Shading) -> str:
    """Return the shades from the lowest to the highest number, with their label."""
    strip = "".join(f'<i class="s{number}"></i>' for number in range(len(SHADES)))
    return (
        f'<p class="scale">{escape(label)} <span>{shades.low:.1f}</span>'
        f'<span class="strip" aria-hidden="true">{strip}</span><span>{shades.high:.1f}</span></p>'
    )


def _figure(matrix: Matrix, shades: Shading) -> str:
    title = escape(matrix.title)
    body = "\n".join(_row(matrix, number, shades) for number in range(len(matrix.rows)))
    names = "".join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in matrix.columns)
    return f"""<figure class="matrix"><figcaption><h3>{title}</h3></figcaption>
<div class="scroll" role="region" aria-label="{title}" tabindex="0">
<table>
<thead>{_groups(matrix)}<tr><td></td>{names}</tr></thead>
<tbody>
{body}
</tbody>
</table>
</div>
{paragraph("note", matrix.note)}</figure>"""


def _groups(matrix: Matrix) -> str:
    """Return a row that names the groups of columns."""
    if not matrix.groups:
        return ""
    cells = "".join(
        f'<th scope="colgroup" colspan="{len(list(columns))}"><span>{escape(name)}</span></th>'
        for name, columns in itertools.groupby(matrix.groups)
    )
    return f'<tr class="groups"><td></td>{cells}</tr>'


def _row(matrix: Matrix, number: int, shades: Shading) -> str:
    kind = ' class="summary"' if number >= len(matrix.rows) - matrix.summary else ""
    cells = "".join(_cell(entry, shades) for entry in matrix.entries[number])
    return f'<tr{kind}><th scope="row">{escape(matrix.rows[number])}</th>{cells}</tr>'


def _cell(entry: Entry, shades: Shading) -> str:
    shade = shades.of(entry.value)
    note = f' title="{escape(entry.note)}"' if entry.note else ""
    if shade is None:
        return f"<td{note}>–</td>"  # noqa: RUF001
    text = f"{entry.value:.1f}{escape(entry.mark)}"
    inside = f"<b>{text}</b>" if entry.best else text
    return f'<td class="s{shade}"{note}>{inside}</td>'
