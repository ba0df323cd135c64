"""Which runs a sweep has: a grid or random draws over settings, times seeds.

sweep section, options --> Axes --> Point, Point, ...   one for each run
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NUM_DRAWS, MAX_PARALLEL = "num_draws", "max_parallel"  # keys of the section that are no settings
SEED = "seed"
_RANGE = {"min", "max", "scale"}
_MOST_RUNS = 10_000  # each has a folder, and a line of the table
_MAX_LABEL = 40  # characters of a value in a name


@dataclass(frozen=True, kw_only=True)
class Range:
    """A range that random draws take numbers from."""

    low: float
    high: float
    is_log: bool = False

    def draw(self, source: random.Random) -> float:
        """Return a number of the range, rounded to three significant digits."""
        if self.is_log:
            value = math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = source.uniform(self.low, self.high)
        return float(f"{value:.3g}")


@dataclass(frozen=True, kw_only=True)
class Axes:
    """What varies.

    Attributes:
        values: by dotted key: the values, or a range.
        seeds: of each setting.
        num_draws: random draws; 0: the whole grid.
    """

    values: Mapping[str, list[Any] | Range]  # Any: yaml
    seeds: Sequence[int]
    num_draws: int = 0


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep."""

    label: str  # the end of its name
    settings: dict[str, Any]  # by dotted key (Any: yaml)


def axes_of(
    section: Mapping[str, Any], *, seed: int, writers: Mapping[str, str] | None = None
) -> Axes:
    """Return what a ``sweep`` section asks for.

    Args:
        section: keys with lists of values, or ranges ``{min, max, scale: linear | log}``; ``seed``
            with a list, or the number of seeds, counted from that of the file; ``num_draws``.
        seed: of the file.
        writers: who wrote each key, for messages.

    Raises:
        ConfigError: it asks for nothing, or for what is none of that.
    """
    given = {key: value for key, value in section.items() if key != MAX_PARALLEL}
    writers = writers or {}
    with blaming(NUM_DRAWS, writers):
        num_draws = _num_draws(given.pop(NUM_DRAWS, 0))
    with blaming(SEED, writers):
        seeds = _seeds(given.pop(SEED, [seed]), first=seed)
    values = {}
    for key, value in given.items():
        with blaming(key, writers):
            values[key] = _values(key, value, is_drawn=num_draws > 0)
    if not values and len(seeds) == 1:
        raise ConfigError(
            "there is nothing to sweep over. Add a section `sweep: {algorithm.optimizer.lr: "
            "[1e-4, 3e-4], seed: 5}` to the file, or use --over algorithm.optimizer.lr=[1e-4,3e-4] "
            "and --seeds 5."
        )
    if num_draws and not values:
        raise ConfigError(f"sweep.{NUM_DRAWS} draws values, and only seeds are given. Add a key.")
    return Axes(values=values, seeds=seeds, num_draws=num_draws)


@contextmanager
def blaming(key: str, writers: Mapping[str, str]) -> Iterator[None]:
    """Say in an error from inside who wrote a key of the section."""
    try:
        yield
    except ConfigError as error:
        place = writers.get(key)
        raise ConfigError(f"{place}: {error}" if place else str(error)) from error


def points_of(axes: Axes, *, draw_seed: int = 0) -> list[Point]:
    """Return the runs: settings in the order of the file, the seeds of a setting together.

    Args:
        axes: what varies.
        draw_seed: of the random draws; more draws of a seed begin with the fewer ones.

    Raises:
        ConfigError: two runs would have the same name, or they are too many.
    """
    lists = [values for values in axes.values.values() if isinstance(values, list)]
    num_settings = axes.num_draws or math.prod(map(len, lists))
    _check_number(num_settings * len(axes.seeds))
    combinations = _drawn(axes, draw_seed) if axes.num_draws else _grid(axes)
    named = short_names([*axes.values, SEED])
    points = []
    for combination, seed in itertools.product(combinations, axes.seeds):
        settings = {**combination, SEED: seed}
        parts = [f"{named[key]}={_label(value)}" for key, value in settings.items()]
        points.append(Point(label="-".join(parts), settings=settings))
    twice = [
        label for label, count in Counter(point.label for point in points).items() if count > 1
    ]
    if twice:
        raise ConfigError(f"two runs of the sweep would be named {twice[0]!r}. Keep one of them.")
    return points


def _check_number(num_runs: int) -> None:
    if num_runs > _MOST_RUNS:
        raise ConfigError(
            f"the sweep would make {num_runs:,} runs, and {_MOST_RUNS:,} are the most. Use fewer "
            f"values or seeds, or random draws of them ({NUM_DRAWS})."
        )


def _grid(axes: Axes) -> list[dict[str, Any]]:
    lists = [values for values in axes.values.values() if isinstance(values, list)]
    return [dict(zip(axes.values, chosen, strict=True)) for chosen in itertools.product(*lists)]


def _drawn(axes: Axes, draw_seed: int) -> list[dict[str, Any]]:
    """Return different draws; fewer where the lists have no more combinations."""
    source, drawn = random.Random(draw_seed), []
    for _ in range(100 * axes.num_draws):
        one = {
            key: values.draw(source) if isinstance(values, Range) else source.choice(values)
            for key, values in axes.values.items()
        }
        if one not in drawn:
            drawn.append(one)
        if len(drawn) == axes.num_draws:
            break
    return drawn


def _num_draws(value: Any) -> int:  # Any: yaml
    if type(value) is not int or value < 0:
        raise ConfigError(f"sweep.{NUM_DRAWS} is {value!r}. Write a number of random draws.")
    return value


def _seeds(value: Any, *, first: int) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        _check_number(value)
        return list(range(first, first + value))
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        return value
    raise ConfigError(
        f"sweep.seed is {value!r}. Write a list of seeds, or how many there are: they are counted "
        f"from the seed of the file."
    )


def _values(key: str, value: Any, *, is_drawn: bool) -> list[Any] | Range:
    if isinstance(value, list) and value:
        return value
    if not isinstance(value, dict) or not {"min", "max"} <= set(value) <= _RANGE:
        raise ConfigError(
            f"sweep.{key} is {value!r}. Write a list of values, or a range for random draws: "
            f"{{min: 1e-5, max: 1e-3, scale: log}}."
        )
    if not is_drawn:
        raise ConfigError(
            f"sweep.{key} is a range, which a grid has no values of. Set sweep.{NUM_DRAWS}."
        )
    return _range(key, value)


def _range(key: str, value: Mapping[str, Any]) -> Range:
    low, high, scale = value["min"], value["max"], value.get("scale", "linear")
    are_numbers = all(isinstance(one, int | float) for one in (low, high))
    if not are_numbers or low >= high or scale not in {"linear", "log"}:
        raise ConfigError(
            f"sweep.{key}: {value!r} is no range with min < max, scale linear or log."
        )
    if scale == "log" and low <= 0:
        raise ConfigError(f"sweep.{key}: a range of scale log begins above 0, not at {low}.")
    return Range(low=float(low), high=float(high), is_log=scale == "log")


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each key that no other has.

    >>> short_names(["algorithm.optimizer.lr", "trainer.critic.optimizer.lr", "seed"])["seed"]
    'seed'
    """
    names = {}
    for key in dict.fromkeys(keys):
        parts = key.split(".")
        ends = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        others = [other for other in keys if other != key]
        alone = (end for end in ends if not any(f".{one}".endswith(f".{end}") for one in others))
        names[key] = next(alone, key)
    return names


def _label(value: Any) -> str:
    """Return a value as a part of a folder's name.

    >>> _label(1e-4), _label("a/b c")
    ('0.0001', 'a_b_c')
    """
    text = re.sub(r"[^\w.+]", "_", str(value))
    if len(text) <= _MAX_LABEL:
        return text
    return f"{text[: _MAX_LABEL - 9]}_{hashlib.sha256(str(value).encode()).hexdigest()[:8]}"
