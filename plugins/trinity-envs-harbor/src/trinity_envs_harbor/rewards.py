"""What a verifier wrote."""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any

from trinity.errors import EnvError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["REWARD", "chosen", "falls_short", "read_rewards", "rolled_up"]

logger = logging.getLogger("trinity.harbor")

REWARD = "reward"
_FOLDER = "/logs/verifier"


def read_rewards(
    read: Callable[[str], bytes | None], *, whose: str = "the verifier", key: str = ""
) -> dict[str, float]:
    """Return the numbers of ``reward.json``, or that of ``reward.txt``, whose name is ``reward``.

    Where both are there, ``reward`` is the lower one: code of the agent that the tests import may
    have written the other. One of the two that cannot be read counts as 0, and so does a wanted
    number that ``reward.json`` does not have. All of it is logged.

    Args:
        read: a path -> what the file holds; None: there is none.
        whose: named in the log.
        key: which number is wanted; "": ``reward``.

    Raises:
        EnvError: there is none, or the only one is no finite number.
    """
    as_json, as_text = read(f"{_FOLDER}/reward.json"), read(f"{_FOLDER}/reward.txt")
    if as_json is None:
        if as_text is None:
            raise EnvError(
                f"the verifier wrote no reward: neither {_FOLDER}/reward.json nor "
                f"{_FOLDER}/reward.txt is there."
            )
        return _of_text(as_text)
    if as_text is None:
        return _of_json(as_json)
    return _of_both(as_json, as_text, whose, key or REWARD)


def _of_both(as_json: bytes, as_text: bytes, whose: str, wanted: str) -> dict[str, float]:
    rewards = _read_or_zero(_of_json, as_json, whose, wanted, REWARD)
    plain = _read_or_zero(_of_text, as_text, whose, REWARD)[REWARD]
    is_plain = wanted == REWARD
    is_told = is_plain and len(rewards) == 1
    told = next(iter(rewards.values())) if is_told else rewards.get(REWARD, plain)
    if told != plain:
        logger.warning(
            "%s wrote %g to reward.json and %g to reward.txt: the lower one counts%s. Code that "
            "the tests import may have written the other.",
            *(whose, told, plain),
            "" if is_plain else f" as 'reward'; workflow_args.reward_key is {wanted!r}",
        )
    if not is_plain and wanted not in rewards:
        names = ", ".join(map(repr, rewards))
        logger.warning(
            "%s wrote two reward files, and reward.json has %s. %r is 0.", whose, names, wanted
        )
        rewards[wanted] = 0.0
    return {**rewards, REWARD: min(told, plain)}


def _read_or_zero(
    read: Callable[[bytes], dict[str, float]], written: bytes, whose: str, *names: str
) -> dict[str, float]:
    try:
        return read(written)
    except EnvError as error:
        logger.warning("%s wrote two reward files, and %s %r is 0.", whose, error, names[0])
        return dict.fromkeys(names, 0.0)


def chosen(rewards: Mapping[str, float], key: str = "") -> float:
    """Return the reward among what a verifier wrote: the key, else ``reward``, else the only one.

    Raises:
        EnvError: none is it.
    """
    names = ", ".join(map(repr, rewards))
    if key:
        if key in rewards:
            return rewards[key]
        raise EnvError(f"the verifier wrote {names}, and workflow_args.reward_key is {key!r}.")
    if REWARD in rewards:
        return rewards[REWARD]
    if len(rewards) == 1:
        return next(iter(rewards.values()))
    raise EnvError(
        f"the verifier wrote {names}, and none is 'reward'. Say which by workflow_args.reward_key."
    )


def falls_short(rewards: Mapping[str, float], least: Mapping[str, float]) -> bool:
    """Return whether a number is below what it must reach, or is not there.

    >>> falls_short({"reward": 0.5}, {"reward": 0.5}), falls_short({"a": 1.0}, {"reward": 0.0})
    (False, True)
    """
    return any(rewards.get(name, -math.inf) < value for name, value in least.items())


def rolled_up(steps: Sequence[Mapping[str, float]], *, is_final: bool) -> dict[str, float]:
    """Return the numbers of a task, of those of its steps that ran.

    Args:
        steps: at least one.
        is_final: those of the last one; else the mean of each, 0 where a step lacks it.

    >>> rolled_up([{"reward": 1.0}, {"reward": 0.0, "speed": 3.0}], is_final=False)
    {'reward': 0.5, 'speed': 1.5}
    """
    if is_final:
        return dict(steps[-1])
    names = dict.fromkeys(name for one in steps for name in one)
    return {name: sum(one.get(name, 0.0) for one in steps) / len(steps) for name in names}


def _of_text(written: bytes) -> dict[str, float]:
    text = written.decode(errors="replace").strip()
    try:
        return {REWARD: _finite(float(text), f"{_FOLDER}/reward.txt")}
    except ValueError:
        told = repr(text[:80]) if text else "empty"
        raise EnvError(f"{_FOLDER}/reward.txt is {told}, which is no number.") from None


def _of_json(written: bytes) -> dict[str, float]:
    name = f"{_FOLDER}/reward.json"
    try:
        found: Any = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise EnvError(f"{name} is no JSON: {error}.") from None
    if not isinstance(found, dict) or not found:
        raise EnvError(f"{name} is {found!r:.80}. It must be an object of numbers.")
    for key, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise EnvError(f"{name}: {key!r} is {value!r:.80}, which is no number.")
    return {key: _finite(value, f"{name}: {key!r}") for key, value in found.items()}


def _finite(number: float, what: str) -> float:
    try:
        value = float(number)
    except OverflowError:  # a whole number of hundreds of digits
        value = math.inf
    if not math.isfinite(value):
        raise EnvError(f"{what} is {value}, which is no finite number.")
    return value
