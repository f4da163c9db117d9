"""Charts as PNG, with matplotlib (the extra ``charts``); no display is needed."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rmq.protocol.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bars", "require", "stacked"]

#: Series beyond these are summed up as one.
_SERIES = 8
#: Characters of a name.
_LONGEST = 28


def require() -> None:
    """:raises ConfigError: matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ConfigError("charts need matplotlib: pip install 'rmq[charts]', or set charts: false") from None


def bars(title: str, values: Mapping[str, float], unit: str) -> bytes:
    """A bar for each name."""
    figure, axes = _figure(max(2.0, 0.35 * len(values) + 1.2))
    names = list(values)[::-1]
    drawn = axes.barh(range(len(names)), [values[name] for name in names], color="#4477aa")
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.bar_label(drawn, [f"{values[name]:,.10g}" for name in names], padding=3, fontsize="small")
    axes.margins(x=0.1)
    axes.set_xlabel(unit)
    axes.set_title(title)
    return _png(figure)


def stacked(title: str, series: Mapping[str, Sequence[tuple[datetime, float]]], width: float, unit: str) -> bytes:
    """Bars over time, one on the other.

    :param series: name to (start of the bar, value). :param width: of a bar in seconds.
    """
    from matplotlib.dates import ConciseDateFormatter

    figure, axes = _figure(4.0)
    base: dict[datetime, float] = {}
    ranked = sorted(series, key=lambda name: -sum(value for _, value in series[name]))
    groups = [(name, [name]) for name in ranked[:_SERIES]]
    if ranked[_SERIES:]:
        groups.append((f"{len(ranked) - _SERIES} more", ranked[_SERIES:]))
    for label, names in groups:
        summed: dict[datetime, float] = {}
        for name in names:
            for at, value in series[name]:
                summed[at] = summed.get(at, 0) + value
        times = sorted(summed)
        heights = [summed[at] for at in times]
        bottoms = [base.get(at, 0) for at in times]
        axes.bar(times, heights, width / 86_400, bottoms, align="edge", label=_short(label))  # type: ignore[arg-type]
        for at, value in summed.items():
            base[at] = base.get(at, 0) + value
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.xaxis_date(tz=UTC)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator(), tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlabel("UTC")
    if groups:
        figure.legend(loc="outside right upper", fontsize="small")
    return _png(figure)


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, height), layout="constrained")
    return figure, figure.subplots()


def _short(name: str) -> str:
    """A name as long as there is room for beside the bars; names often differ at their ends."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 + 1 :]}"


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()
