"""The samples of a run as an SVG: one curve per figure, below each other, over the same time."""

from __future__ import annotations

from dataclasses import fields

from bench.soak.samples import Sample

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 640, 110, 60, 40, 40
_TITLES = {
    "memory_mb": "memory of the plane (MB)",
    "file_mb": "size of the store with its write-ahead log (MB)",
    "log_lines_per_s": "log lines per second",
    "processes": "processes: plane, zygote, one shim per pod",
}


def svg(samples: list[Sample], title: str) -> str:
    panels = [
        _panel(samples, field.name, _TOP + number * (_HEIGHT + _GAP)) for number, field in enumerate(fields(Sample)[1:])
    ]
    height = _TOP + len(panels) * (_HEIGHT + _GAP)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}"'
            ' font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{_LEFT}" y="16" font-size="14">{title}</text>',
            *panels,
            "</svg>",
            "",
        ]
    )


def _panel(samples: list[Sample], figure: str, top: int) -> str:
    minutes = max(sample.minute for sample in samples) or 1.0
    highest = max(getattr(sample, figure) for sample in samples) or 1.0
    bottom = top + _HEIGHT
    points = " ".join(
        f"{_LEFT + sample.minute / minutes * _WIDTH:.1f},{bottom - getattr(sample, figure) / highest * _HEIGHT:.1f}"
        for sample in samples
    )
    return "\n".join(
        [
            f'<text x="{_LEFT}" y="{top - 4}">{_TITLES[figure]}</text>',
            f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{highest:.4g}</text>',
            f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
            f'<text x="{_LEFT + _WIDTH}" y="{bottom + 14}" text-anchor="end">{minutes:.0f} min</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#bbb"/>',
            f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="1.2"/>',
        ]
    )
