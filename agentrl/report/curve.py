"""The learning curve of a run as an SVG picture: success on training tasks, and held-out evaluations with intervals.

The picture shows the same numbers as the run's page (`CurveData`). No drawing library is needed, and the same run gives
the same bytes.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from agentrl.files import write_atomically
from agentrl.report.run_curve import curve_data
from agentrl.report.run_schema import CurveData, EvaluationPoint
from agentrl.run import RunFolder, read_metrics

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 96, 40, 48
COLOURS = {"sampled": "#1f5fa8", "greedy": "#b4532a"}
GREY, LINE, INK = "#8a93a5", "#dfe3ea", "#1d2330"
STEP_WORDS = 8  # largest number of intervals between the numbers on the axis of iterations


def learning_curve(folder: RunFolder) -> Path:
    """Draw `learning_curve.svg` into a run's folder, and return its path.

    Raises:
        ValueError: the metrics are damaged.
    """
    curve = curve_data(folder.path.resolve().name, folder.path, read_metrics(folder.metrics).rows, [])
    path = folder.path / "learning_curve.svg"
    write_atomically(path, curve_svg(curve).encode())
    return path


def curve_svg(curve: CurveData) -> str:
    """The picture, on a white background so that it can be read on any page."""
    last = max([1, *curve.iteration, *(point.iteration for point in curve.evaluations)])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{INK}">',
        f"<title>{escape(curve.name)}: success on held-out tasks</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="15" font-weight="600">{escape(curve.name)}: success on held-out tasks'
        "</text>",
        *_axes(last),
        *_training(curve, last),
    ]
    most = max((point.episodes for point in curve.evaluations), default=0)
    # At iteration 0 the picture shows the evaluation of the clone; the evaluation of the start is shown only if the
    # run has no clone.
    cloned = any(point.name == "clone" for point in curve.evaluations)
    ends: list[tuple[float, str]] = []
    for mode, shift in (("sampled", -2.0), ("greedy", 2.0)):
        points = [p for p in curve.evaluations if p.mode == mode and not (cloned and p.name == "start")]
        if points:
            lines += _evaluations(points, mode, shift, last, most)
            ends.append((_up(points[-1].success), mode))
    lines += _labels(ends)
    return "\n".join([*lines, "</svg>", ""])


def _across(iteration: float, last: int) -> float:
    return LEFT + iteration / last * (WIDTH - LEFT - RIGHT)


def _up(success: float) -> float:
    return HEIGHT - BOTTOM - success * (HEIGHT - TOP - BOTTOM)


def _axes(last: int) -> list[str]:
    lines = []
    for tenth in range(0, 11, 2):
        y = _up(tenth / 10)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10 * tenth}%</text>')
    step = next(s for p in range(9) for s in (10**p, 2 * 10**p, 5 * 10**p) if last / s <= STEP_WORDS)
    for iteration in range(0, last + 1, step):
        x = _across(iteration, last)
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{iteration}</text>')
    x = (LEFT + WIDTH - RIGHT) / 2
    return [*lines, f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">iteration</text>']


def _training(curve: CurveData, last: int) -> list[str]:
    points = [(_across(i, last), _up(s)) for i, s in zip(curve.iteration, curve.success, strict=True) if s is not None]
    label = (
        f'<text x="{WIDTH - RIGHT - 4}" y="{HEIGHT - BOTTOM - 8}" text-anchor="end" fill="{GREY}">grey: training tasks'
    )
    sizes = sorted({point.episodes for point in curve.evaluations})
    small = f"; small marks: {' or '.join(map(str, sizes[:-1]))} of the {sizes[-1]} tasks" if len(sizes) > 1 else ""
    return [_line(points, f'stroke="{GREY}" stroke-opacity="0.7"'), f"{label}; bars: 95% intervals{small}</text>"]


def _evaluations(points: Sequence[EvaluationPoint], mode: str, shift: float, last: int, most: int) -> list[str]:
    """The marks of a mode's evaluations, and a line through them.

    A mark is small if its evaluation has fewer than `most` tasks; if any mark is small, the line is thin.
    """
    at = [(_across(p.iteration, last) + shift, _up(p.success), p) for p in points]
    colour, width = COLOURS[mode], 2 if all(p.episodes == most for p in points) else 1
    lines = [_line([(x, y) for x, y, _ in at], f'stroke="{colour}" stroke-width="{width}"')]
    for x, y, p in at:
        r = 4 if p.episodes == most else 2.5
        low, high = _up(p.low), _up(p.high)
        bar = f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"
        lines.append(f'<path d="{bar}" stroke="{colour}" stroke-width="1.5"/>')
        words = f"{p.name}, {mode}: {p.success:.1%} [{p.low:.1%}, {p.high:.1%}] of {p.episodes}"
        mark = (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{colour}">'
            if mode == "sampled"
            else f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r}" height="{2 * r}" fill="{colour}">'
        )
        lines.append(f"{mark}<title>{escape(words)}</title>{'</circle>' if mode == 'sampled' else '</rect>'}")
    return lines


def _labels(ends: Sequence[tuple[float, str]]) -> list[str]:
    """The names of the modes beside their last points, one below the other."""
    lines, above = [], 0.0
    for y, mode in sorted(ends):
        above = max(y + 4, above + 16)
        lines.append(
            f'<text x="{WIDTH - RIGHT + 12}" y="{above:.1f}" fill="{COLOURS[mode]}" font-weight="600">{mode}</text>'
        )
    return lines


def _line(points: Sequence[tuple[float, float]], style: str) -> str:
    if not points:
        return ""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="{path}" fill="none" {style}/>'
