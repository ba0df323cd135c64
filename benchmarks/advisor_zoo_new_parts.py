"""Parts of the further kinds of pathology of the zoo, ``advisor_zoo_new_kinds.py``."""

# ruff: noqa: D101, D102 -- what they override is documented

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from advisor_zoo_parts import ENGINES, KINDS, _changed, _changes, _OwnWeights, share
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn
from trinity.common.workflows import WORKFLOWS
from trinity.common.workflows.simple import SimpleWorkflow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import Completion, GenerationRequest

    Step = Callable[..., Metrics]

# --- rewards


class PreviousReward(RewardFn):
    """Gives each reply the score of the one that was judged before it."""

    last = 0.0

    def __init__(self, kind: str = "letters") -> None:
        self._kind = kind

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        given, PreviousReward.last = PreviousReward.last, share(response, KINDS[self._kind])
        return {"share": given}


class InflatingReward(RewardFn):
    """The share, and more for every reply that was judged before, whatever it said."""

    num_calls = 0

    def __init__(self, by: float = 0.001, weight: float = 0.1) -> None:
        self._by, self._weight = by, weight

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        InflatingReward.num_calls += 1
        right = self._weight * share(response, KINDS["letters"])
        return {"score": right + self._by * InflatingReward.num_calls}


class PlaceReward(RewardFn):
    """Prefers the replies that are judged first, as a judge does that compares them in order."""

    num_calls = 0

    def __init__(self, size: int = 8) -> None:
        self._size = size

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        PlaceReward.num_calls += 1
        return {"rank": 1.0 - PlaceReward.num_calls % self._size / self._size}


for _name, _cls in {
    "zoo_previous": PreviousReward, "zoo_inflating": InflatingReward, "zoo_place": PlaceReward,
}.items():  # fmt: skip
    REWARD_FUNCTIONS.register_module(_name)(_cls)


# --- workflows


@WORKFLOWS.register_module("zoo_hidden")
class HiddenReply(SimpleWorkflow):
    """Masks the reply, of which its last tokens alone are trained: a mask that begins too late."""

    def run(self) -> list[Experience]:
        kept = int(self.task.workflow_args.get("kept", 1))
        changed = []
        for one in super().run():
            mask = torch.zeros(len(one.tokens) - one.prompt_length, dtype=torch.bool)
            mask[len(mask) - kept :] = True
            changed.append(replace(one, action_mask=mask))
        return changed


# --- engines


@ENGINES.register_module("zoo_cached")
class CachedReplies(_OwnWeights):
    """Gives all rollouts of a task the reply of the first: a cache in front of the engine."""

    is_lasting = False  # True: it is never emptied

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        kept: dict[Any, Completion] = self.__dict__.setdefault("kept", {})
        step = None if self.is_lasting else request.key.batch
        key = (request.prompt_token_ids, step)
        return _changed(super().submit(request), lambda one: kept.setdefault(key, one))


@ENGINES.register_module("zoo_lasting_cache")
class LastingCache(CachedReplies):
    is_lasting = True


@ENGINES.register_module("zoo_zero_logprobs")
class ZeroLogprobs(_OwnWeights):
    """Tells 0 in place of log-probabilities, as an endpoint does that has none."""

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        def change(one: Completion) -> Completion:
            return replace(one, logprobs=(0.0,) * len(one.logprobs))

        return _changed(super().submit(request), change)


@ENGINES.register_module("zoo_shifted_logprobs")
class ShiftedLogprobs(_OwnWeights):
    """Tells the log-probability of each token one token too late."""

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        def change(one: Completion) -> Completion:
            return replace(one, logprobs=(one.logprobs[-1], *one.logprobs[:-1]))

        return _changed(super().submit(request), change)


@ENGINES.register_module("zoo_corrupted")
class CorruptedTokens(_OwnWeights):
    """Loses a part of the tokens on the way: others stand in their place."""

    rate = 0.3

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        chance = random.Random(f"{request.key}")

        def change(one: Completion) -> Completion:
            *body, last = one.token_ids
            ids = [chance.randrange(40, 120) if chance.random() < self.rate else i for i in body]
            return replace(one, token_ids=(*ids, last))

        return _changed(super().submit(request), change)


@ENGINES.register_module("zoo_corrupted_seldom")
class CorruptedSeldom(CorruptedTokens):
    rate = 0.08


# --- trainers


def _without_sign(rows: list[Experience]) -> None:
    for row in rows:
        if row.advantages is not None:
            row.advantages = row.advantages.abs()


def _resets(every: int) -> Callable[[Step], Step]:
    """Return what puts the weights back to those of the start after so many steps."""

    def wrap(step_of: Step) -> Step:
        first: dict[str, torch.Tensor] = {}

        def train_step(self: Any, experiences: Sequence[Experience], *, step: int) -> Metrics:
            named = dict(self.model.named_parameters())
            if not first:
                first.update({name: one.detach().clone() for name, one in named.items()})
            metrics = step_of(self, experiences, step=step)
            if step % every == 0:
                with torch.no_grad():
                    for name, one in named.items():
                        one.copy_(first[name])
            return metrics

        return train_step

    return wrap


def _stuck(after: int) -> Callable[[Step], Step]:
    """Return what trains on one batch for ever: the queue that should give others does not move."""

    def wrap(step_of: Step) -> Step:
        kept: list[Experience] = []

        def train_step(self: Any, experiences: Sequence[Experience], *, step: int) -> Metrics:
            if step <= after:
                kept[:] = [replace(one) for one in experiences]
            return step_of(self, [replace(one) for one in kept], step=step)

        return train_step

    return wrap


def _not_a_number(at: int, name: str) -> Callable[[Step], Step]:
    """Return what makes one weight NaN, from a step on, in the parameters of a name."""

    def wrap(step_of: Step) -> Step:
        def train_step(self: Any, experiences: Sequence[Experience], *, step: int) -> Metrics:
            metrics = step_of(self, experiences, step=step)
            if step == at:
                with torch.no_grad():
                    for own, one in self.model.named_parameters():
                        if name in own:
                            one.view(-1)[0] = float("nan")
            return metrics

        return train_step

    return wrap


TRAINERS: dict[str, Callable[[Step], Step]] = {
    "zoo_without_sign": _changes(_without_sign),
    "zoo_reset_4": _resets(4),
    "zoo_reset_1": _resets(1),
    "zoo_stuck_1": _stuck(1),
    "zoo_stuck_6": _stuck(6),
    "zoo_nan_norm": _not_a_number(9, "norm"),
    "zoo_nan_late": _not_a_number(16, "embed"),
}
