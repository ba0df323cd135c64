"""Where a replay is not what was recorded: a call, a step, a reward, or what would be trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.experience import Experience
    from trinity.runtime.record.sample_files import Sample

    from trinity_debug.environments import Departure


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Where a replay is not what was recorded; the texts begin with the first that differs."""

    what: str
    was: str = ""
    now: str = ""
    thing: str = "prompt"  # what the texts are: the prompt of a call, the action of a step, tokens

    def __str__(self) -> str:
        """Return it as a sentence."""
        if not (self.was or self.now):
            return f"the replay differs: {self.what}"
        return (
            f"the replay differs at {self.what}. It was recorded as {self.was!r}, now {self.now!r}"
        )


def of_environment(departure: Departure) -> Difference:
    """Return where the workflow asked the environment something else."""
    what = f"step {departure.step} of {departure.of} of the environment"
    return Difference(what=what, was=departure.was, now=departure.now, thing="action")


def of_experiences(
    samples: Sequence[Sample],
    experiences: Sequence[Experience],
    *,
    decode: Callable[[Sequence[int]], str],
) -> Difference | None:
    """Return what differs in what would be trained; None: nothing.

    Args:
        samples: as they were trained.
        experiences: of the replay.
        decode: returns the text of tokens.
    """
    found = {one.eid.uid: one for one in experiences}
    for sample in samples:
        now = found.get(sample.eid)
        if now is None:
            return Difference(what=f"there is no experience {sample.eid} any more")
        differs = _reward(sample, now) or _tokens(sample, now, decode) or _mask(sample, now)
        if differs is not None:
            return differs
    return None


def num_same(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def reward_of(sample: Sample) -> float | None:
    """Return the reward of a sample; of one with a reward for each token, their sum."""
    return sample.reward if sample.token_rewards is None else float(sample.token_rewards.sum())


def _reward(sample: Sample, experience: Experience) -> Difference | None:
    was, now = reward_of(sample), experience.reward
    if experience.token_level_reward is not None:
        now = float(experience.token_level_reward.sum())
    if was == now or (was is not None and now is not None and math.isclose(was, now)):
        return None
    return Difference(what=f"the reward of {sample.eid} was {was}, and is now {now}")


def _tokens(
    sample: Sample, experience: Experience, decode: Callable[[Sequence[int]], str]
) -> Difference | None:
    was, now = sample.tokens.tolist(), experience.tokens.tolist()
    if was == now:
        return None
    same = num_same(was, now)
    what = f"token {same + 1} of {len(was)} of the experience {sample.eid}"
    return Difference(what=what, was=decode(was[same:]), now=decode(now[same:]), thing="tokens")


def _mask(sample: Sample, experience: Experience) -> Difference | None:
    """Return whether other tokens would be trained; those of a preference pair have no mask."""
    if experience.action_mask is None:
        return None
    was = [False] * sample.prompt_length + sample.own_mask.tolist()
    now = [False] * experience.prompt_length + experience.action_mask.tolist()
    if was == now:
        return None
    same = num_same(was, now)
    trained = f"{sum(was)} tokens of the experience {sample.eid} were the model's own"
    return Difference(what=f"{trained}, and {sum(now)} are now; token {same + 1} is the first")
