"""Draw reward, success and loss of a run from its metrics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trinity.monitor.jsonl import read_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

Rows = list[dict[str, float]]


def draw_plots(monitor_dir: Path, plot_dir: Path, *, title: str) -> list[Path]:
    """Write ``reward``, ``success`` and ``loss.png``; return those that had something to show."""
    explorer = read_metrics(monitor_dir, role="explorer")
    trainer = read_metrics(monitor_dir, role="trainer")
    plots = []
    for metric in ("reward", "success"):  # environments tell whether a run reached its goal
        if _series(explorer, f"rollout/{metric}/mean"):
            fill = partial(_rollouts, rows=explorer, metric=metric)
            plots.append(_draw(plot_dir / f"{metric}.png", title, fill))
    if _series(trainer, "actor/loss"):
        plots.append(_draw(plot_dir / "loss.png", title, lambda axes: _loss(axes, trainer)))
    return plots


def _draw(path: Path, title: str, fill) -> Path:  # noqa: ANN001 -- a function on Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7, 4))
    # Margins that fit: a layout takes twice as long.
    figure.subplots_adjust(left=0.13, right=0.98, bottom=0.13, top=0.92)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    fill(axes)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    part = path.with_suffix(".part")
    figure.savefig(part, format="png", dpi=120, pil_kwargs={"compress_level": 1})
    return part.replace(path)


def _rollouts(axes: Axes, *, rows: Rows, metric: str) -> None:
    steps, means = zip(*_series(rows, f"rollout/{metric}/mean"), strict=True)
    axes.plot(steps, means, color="tab:blue", alpha=0.35, label="rollout, each step")
    axes.plot(steps, _smooth(list(means)), color="tab:blue", label="rollout, mean of 10 steps")
    for number, name in enumerate(_evaluated(rows, metric), start=1):
        points = _series(rows, name)
        label = "evaluation " + name.removeprefix("eval/").replace(f"/{metric}/", ", ")
        axes.plot(*zip(*points, strict=True), "o-", color=f"C{number}", label=label)
    axes.set_xlabel("explore step")
    axes.set_ylabel(metric)
    axes.legend(frameon=False)


def _loss(axes: Axes, rows: Rows) -> None:
    steps, losses = zip(*_series(rows, "actor/loss"), strict=True)
    axes.plot(steps, losses, color="tab:red", alpha=0.35, label="each step")
    axes.plot(steps, _smooth(list(losses)), color="tab:red", label="mean of 10 steps")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss")
    axes.legend(frameon=False)


def _evaluated(rows: Rows, metric: str) -> list[str]:
    names = {name for row in rows for name in row if f"/{metric}/mean@" in name}
    return sorted(name for name in names if name.startswith("eval/"))


def _series(rows: Rows, name: str) -> list[tuple[float, float]]:
    """Return a value for each step: the last one, where a run that was killed repeated steps."""
    return sorted({row["step"]: row[name] for row in rows if row.get(name) is not None}.items())


def _smooth(values: list[float], window: int = 10) -> list[float]:
    means = []
    for end in range(1, len(values) + 1):
        part = values[max(0, end - window) : end]
        means.append(sum(part) / len(part))
    return means
