"""``trinity compare``: what runs reached, over their seeds, and what of it is noise."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from trinity.cli.output import echo_columns, plain
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity_lab.comparison import Arm, Difference
    from trinity_lab.outcomes import Outcome
    from trinity_lab.statistics import Interval

_FEW_SEEDS = 5  # below it the spread of an arm is hardly known
_MOST_SHOWN, _WIDTH = 12, 40  # settings, and characters of a value
_MOST_PAIRS = 6  # of four arms; of more those with the highest mean are shown


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories, or NAME.sweep folders.")
    ],
    metric: Annotated[
        str,
        typer.Option(help="Metric of the last evaluation or of metrics.jsonl; default: reward."),
    ] = "",
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Include runs that are not finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare runs: those that differ only in the seed are one arm.

    Prints each arm's mean with a 95 % interval, tests each pair of arms, and estimates how many
    seeds it would take to detect the difference.
    """
    from trinity_lab.comparison import arms_of, differences_of, with_comparable_tasks

    found, notes = _outcomes(runs, metric=metric, unfinished=unfinished)
    outcomes, notes_of_tasks = with_comparable_tasks(found)
    notes += notes_of_tasks
    arms = arms_of(outcomes)
    differences = differences_of(arms)
    if as_json:
        typer.echo(json.dumps(_json(arms, differences, notes), indent=2))
        return
    digits = _digits(outcomes)
    _echo_arms(arms, digits=digits)
    shown = _shown_differences(arms, differences)
    for line in [*(line for one in shown for line in _lines(one, digits=digits)), *notes]:
        typer.echo(plain(line))
    if len(shown) < len(differences):
        typer.echo(
            f"\nonly the arm with the highest mean is compared with each other one here; --json "
            f"has all {len(differences)} pairs, for which each p is corrected"
        )
    _echo_settings(arms)


def _shown_differences(
    arms: Sequence[Arm], differences: Sequence[Difference]
) -> Sequence[Difference]:
    if len(differences) <= _MOST_PAIRS:
        return differences
    best = max(arms, key=lambda arm: arm.mean)
    return [one for one in differences if best is one.first or best is one.second]


def _outcomes(
    runs: Sequence[Path], *, metric: str, unfinished: bool
) -> tuple[list[Outcome], list[str]]:
    """Return what the runs reached, and what of them is left out.

    Raises:
        ConfigError: nothing is left, the runs have different metrics, or a value is no number.
    """
    from trinity_lab.outcomes import is_finished, read_outcome, run_directories

    directories = run_directories(runs)
    left_out = [] if unfinished else [one for one in directories if not is_finished(one)]
    found = [read_outcome(one, metric=metric) for one in directories if one not in left_out]
    notes = [f"note: {one} is not finished and left out (--unfinished)" for one in left_out]
    notes += [
        f"note: {one.directory} is not finished: {one.status} after {one.last_step}"
        for one in found
        if one.status != "finished"
    ]
    if not found:
        raise ConfigError(f"none of the {len(directories)} runs is finished. Use --unfinished.")
    metrics = dict.fromkeys(one.metric for one in found)
    if len(metrics) > 1:
        raise ConfigError(f"the runs have different metrics: {', '.join(metrics)}. Use --metric.")
    if wrong := [one for one in found if not math.isfinite(one.value)]:
        named = ", ".join(f"{one.directory} ({one.value})" for one in wrong)
        raise ConfigError(
            f"{found[0].metric} is no finite number in {named}, so nothing can be said of it. "
            f"Leave {'these runs' if len(wrong) > 1 else 'this run'} out, or name another --metric."
        )
    return found, notes


def _digits(runs: Sequence[Outcome]) -> str:
    """Return how values are written: three decimals, or three digits of values below a tenth."""
    return ".3f" if max(abs(run.value) for run in runs) >= 0.1 else ".3g"


def _echo_arms(arms: Sequence[Arm], *, digits: str) -> None:
    from trinity_lab.outcomes import NUM_LAST

    first = arms[0].runs[0]
    nums = sorted({len(run.tasks) for arm in arms for run in arm.runs} - {0})
    what = f", {' to '.join(map(str, dict.fromkeys((nums[0], nums[-1]))))} tasks" if nums else ""
    if not first.is_of_evaluation:
        what = f", mean of the last {NUM_LAST} steps of each run"
    over = "seeds and tasks" if nums else "seeds"
    typer.echo(f"{first.metric}{what}; intervals: 95 %, bootstrap over {over}\n")
    rows = [
        [
            plain(arm.label),
            str(len(arm.runs)),
            format(arm.mean, digits),
            _shown(arm.interval, digits),
            " ".join(format(value, digits) for value in arm.values),
        ]
        for arm in arms
    ]
    echo_columns(["arm", "seeds", "mean", "interval", "each seed"], rows)


def _lines(one: Difference, *, digits: str) -> Iterator[str]:
    yield ""
    interval = "" if one.interval is None else f" ({_shown(one.interval, digits)})"
    value = format(one.value, f"+{digits}")
    yield f"{one.second.label} against {one.first.label}: {value}{interval}"
    verdict = "distinguishable" if one.is_distinguishable else "not distinguishable"
    yield f"  {verdict}: p {_p(one.p)} (permutation test over runs)"
    if one.smallest_p >= 0.05:
        smallest = f"{one.smallest_p:.3f}"
        yield f"  so few seeds cannot show any difference: their smallest p is {smallest}"
    if one.p_tasks is not None:
        yield (
            f"  paired over {one.num_tasks} tasks: p {_p(one.p_tasks)}, for these runs on these "
            f"tasks; it says nothing about other seeds"
        )
    if not one.is_distinguishable:
        yield from _needed(one)


def _needed(one: Difference) -> Iterator[str]:
    num_seeds = min(len(one.first.runs), len(one.second.runs))
    if one.needed is None:
        yield "  one seed says nothing about the spread of seeds. Run at least five of each."
        return
    if math.isinf(one.needed.count):
        yield "  the means are equal: no number of seeds tells them apart"
        return
    count = max(2, round(one.needed.count))
    low, high = max(2, round(one.needed.range.low)), round(one.needed.range.high)
    yield (
        f"  a difference of this size would need about {count:,} seeds an arm (two-sided test at "
        f"5 %, power 80 %, normal values of equal spread)"
    )
    word = "unreliable" if num_seeds < _FEW_SEEDS else "uncertain"
    yield (
        f"  that estimate from {num_seeds} seeds an arm is itself {word}: 95 % range {low:,} to "
        f"{high:,}, for the spread alone"
    )


def _echo_settings(arms: Sequence[Arm]) -> None:
    settings, derived = arms[0].settings, arms[0].derived
    # Where all are derived, nothing that was written differs: the machine, or a plugin's version.
    paths = [path for path in settings if path not in derived] or list(settings)
    if not paths:
        return
    typer.echo("\nsettings that differ")
    for path in paths[:_MOST_SHOWN]:
        values = " | ".join(map(_short, dict.fromkeys(str(arm.settings[path]) for arm in arms)))
        typer.echo(plain(f"  {path}: {values}"))
    if len(paths) > _MOST_SHOWN:
        typer.echo(f"  and {len(paths) - _MOST_SHOWN} more (--json)")
    if len(paths) < len(settings):
        word, them = "s"[: len(derived) == 1], "them" if len(paths) > 1 else "it"
        typer.echo(f"  and {len(derived)} that follow{word} from {them} (--json)")


def _json(
    arms: Sequence[Arm], differences: Sequence[Difference], notes: Sequence[str]
) -> dict[str, object]:
    return {
        "schema": 1,
        "metric": arms[0].runs[0].metric,
        "arms": [
            {
                "label": arm.label,
                "mean": arm.mean,
                "interval": _pair(arm.interval),
                "runs": [
                    {"directory": str(run.directory), "seed": run.seed, "value": run.value}
                    for run in arm.runs
                ],
                "settings": arm.settings,
            }
            for arm in arms
        ],
        "differences": [
            {
                "first": one.first.label,
                "second": one.second.label,
                "value": one.value,
                "interval": _pair(one.interval),
                "p": one.p,
                "num_tasks": one.num_tasks,
                "p_tasks": one.p_tasks,
                "is_distinguishable": one.is_distinguishable,
                "seeds_needed": _seeds_needed(one),
            }
            for one in differences
        ],
        "derived": list(arms[0].derived),
        "notes": list(notes),
    }


def _seeds_needed(one: Difference) -> dict[str, object] | None:
    """Return the seeds; of equal means no number, as infinity is no JSON."""
    if one.needed is not None and math.isinf(one.needed.count):
        return {"count": None, "range": None}
    return None if one.needed is None else asdict(one.needed)


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _shown(interval: Interval | None, digits: str) -> str:
    if interval is None:
        return "none"
    return f"{format(interval.low, digits)} to {format(interval.high, digits)}"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _p(value: float) -> str:
    return f"= {value:.3f}" if value >= 0.001 else "< 0.001"
