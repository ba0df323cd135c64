"""Which charts and numbers a run has."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from trinity_debug.step_times import step_times

from trinity_studio.view.charts import Line, chart, smoothed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup
    from trinity_debug.step_times import StepTimes

    from trinity_studio.view.metrics_file import Series
    from trinity_studio.view.run import Run

__all__ = ["compared", "figures", "flat_figures", "times_of"]

_SMOOTH = 10
_TIMED = 100  # steps that the table of times is a mean of
_E, _T, _S = "explorer", "trainer", "synchronizer"
_REWARD_FLOOR, _TIME_FLOOR = 0.01, 0.01
_STALENESS = "staleness"
# title, what it shows, its role, names of which the first that is there is shown, and how much of
# its unit the axis spans at least
_CHARTS: tuple[tuple[str, str, str, tuple[str, ...], float], ...] = (
    ("loss", "of each train step", _T, ("actor/loss", "loss"), 1e-3),
    ("response length", "tokens, mean of a step", _E, ("rollout/response_length/mean",), 1),
    ("KL from the rollout's policy", "mean", _T, ("actor/ppo_kl", "actor/kl_loss"), 1e-3),
    ("entropy", "nats a token", _T, ("actor/entropy_loss", "actor/entropy"), 0.01),
    ("gradient norm", "", _T, ("actor/grad_norm",), 1e-3),
    (_STALENESS, "off-policy steps, mean", _T, ("sample/model_version/mean",), 1),
    ("failed runs", "of a step, left out", _E, ("rollout/failed_runs",), 1),
    ("rollout against trainer", "difference of log-probabilities", _T,
     ("actor/rollout_logprob_diff",), 1e-3),
    ("seconds of a step", "", _S, ("time/step_s",), _TIME_FLOOR),
)  # fmt: skip


def figures(run: Run) -> list[Markup]:
    """Return the charts of one run, those alone that have something to show."""
    rewards = _rewards(run)
    evaluated = [name for name, _ in _evaluated(run)]
    source = _source(run, "rollout/reward/mean", *evaluated)
    still = "; bold: of the last ten" if rewards[0].is_faint else ""
    note = "mean of a step"
    found = [chart("reward", rewards, note=note, still=still, floor=_REWARD_FLOOR, source=source)]
    for title, note, role, names, floor in _CHARTS:
        points = run.metrics.series(*names, role=role)
        if title == _STALENESS:
            points = _off_policy_steps(points)
        if _is_worth(title, points):
            lines, source = [Line(label="", points=points)], _source(run, *names, most=1)
            found.append(chart(title, lines, note=note, floor=floor, source=source))
    sides = _source(run, "time/rollout_s", "time/train_s", "time/sync_s")
    times = chart(
        "where the time goes", _times(run), note="seconds by side", floor=_TIME_FLOOR, source=sides
    )
    found.append(times)
    return [one for one in found if one]


def flat_figures(run: Run) -> list[str]:
    """Return the titles of what is 0 in every step, and so has no chart."""
    return [
        title
        for title, _, role, names, _ in _CHARTS
        if (points := run.metrics.series(*names, role=role)) and not _is_worth(title, points)
    ]


def compared(runs: Mapping[int, Run]) -> list[Markup]:
    """Return the charts of several runs, a line each in the colour of its number."""
    reward = ("reward", "mean of a step", _E, ("rollout/reward/mean",), _REWARD_FLOOR)
    charts = []
    for title, note, role, names, floor in (reward, *_CHARTS):
        found = {place: run.metrics.series(*names, role=role) for place, run in runs.items()}
        lines = [
            Line(label=runs[place].name, colour=colour, points=points)
            for colour, (place, points) in enumerate(found.items())
        ]
        source = next((one for run in runs.values() if (one := _source(run, *names, most=1))), "")
        charts.append(chart(title, lines, note=note, floor=floor, source=source))
    lines = [
        Line(label=run.name, colour=colour, points=points)
        for colour, run in enumerate(runs.values())
        for _, points in _evaluations(run)[:1]
    ]
    sets = [name for run in runs.values() for name, _ in _evaluated(run)[:1]]
    held_out = chart(
        "reward on held-out tasks",
        lines,
        note="first set of each",
        floor=_REWARD_FLOOR,
        source=urlencode([("name", name) for name in dict.fromkeys(sets)]),
    )
    charts.insert(1, held_out)
    return [one for one in charts if one]


def times_of(run: Run) -> StepTimes | None:
    """Return where the time of its steps goes; None: there are too few."""
    num_steps = len(run.metrics.series("time/step_s", "time/train_s"))
    skip = max(3 if num_steps > 6 else 0, num_steps - _TIMED)
    return step_times(_timed(run, after=skip), skip=skip)


def _source(run: Run, *names: str, most: int = 9) -> str:
    """Return the query of the metrics that a run has; the script draws a chart of them."""
    there = [name for name in names if run.metrics.series(name)][:most]
    return urlencode([("name", name) for name in there])


def _off_policy_steps(versions: Series) -> Series:
    """Return how many versions behind the trained policy samples were; empty: another run's."""
    steps = [(step, step - 1 - version) for step, version in versions]
    return steps if all(number >= 0 for _, number in steps) else []


def _is_worth(title: str, points: Series) -> bool:
    return title == "loss" or any(value for _, value in points)


def _timed(run: Run, *, after: int) -> list[dict[str, float]]:
    """Return the rows of the steps after one, without numbers that JSON could not hold."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in run.metrics.rows
        if row["step"] > after
    ]


def _rewards(run: Run) -> list[Line]:
    points = run.metrics.series("rollout/reward/mean", role=_E)
    lines = [Line(label="", points=points, is_faint=True)] if len(points) > _SMOOTH else []
    smooth = _smooth(points)
    lines.append(Line(label="training tasks" if points else "", points=smooth))
    for place, (name, own) in enumerate(_evaluations(run), start=1):
        lines.append(Line(label=f"held out: {name}", points=own, colour=place, is_dots=True))
    return lines


def _evaluations(run: Run) -> list[tuple[str, Series]]:
    return [(name.split("/")[1], points) for name, points in _evaluated(run)]


def _evaluated(run: Run) -> list[tuple[str, Series]]:
    """Return the mean rewards of evaluations by the names of their metrics."""
    return [(name, run.metrics.series(name)) for name in run.held_out]


def _times(run: Run) -> list[Line]:
    wanted = (("explore", _E, "time/rollout_s"), ("train", _T, "time/train_s"),
              ("sync", _S, "time/sync_s"))  # fmt: skip
    return [
        Line(label=label, colour=place, points=run.metrics.series(name, role=role))
        for place, (label, role, name) in enumerate(wanted)
    ]


def _smooth(points: Series) -> Series:
    return smoothed(points, width=_SMOOTH) if len(points) > _SMOOTH else points
