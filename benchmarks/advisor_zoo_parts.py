"""Parts of the zoo of ``advisor_zoo.py``: rewards, wrong workflows, engines and trainers."""

# ruff: noqa: D101, D102 -- what they override is documented

from __future__ import annotations

import random
from concurrent.futures import Future
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn
from trinity.common.workflows import WORKFLOWS
from trinity.common.workflows.simple import SimpleWorkflow
from trinity.engines.transformers_engine import TransformersEngine
from trinity.extend import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import Completion, GenerationRequest, WeightSnapshot

    Step = Callable[..., Metrics]

ENGINES = Registry("zoo engines", kind="rollout_engine")

# --- what the model is to learn: the share of characters of one kind


def share(text: str, is_one: Any) -> float:
    """Return the share of the text's characters for which a function is true; of none, 0."""
    return sum(map(is_one, text)) / len(text) if text else 0.0


KINDS = {
    "letters": str.isalpha,
    "digits": lambda one: one in "0123456789",
    "lower": lambda one: "a" <= one <= "z",
    "upper": lambda one: "A" <= one <= "Z",
    "ascii": lambda one: "!" <= one <= "~",
    "vowels": lambda one: one in "aeiouAEIOU",
    "punctuation": lambda one: one in "!\"#$%&'()*+,-./:;<=>?@",
    "consonants": lambda one: one in "bcdfghjklmnpqrstvwxz",
}


LIMIT = 16  # tokens of a reply; one that is cut there scores nothing, as is usual


class ShareReward(RewardFn):
    """Scores the share of characters of a kind; of a reply that does not end, 0.

    Args:
        kind: of the characters.
        scale: of the reward.
        limit: tokens of a reply.
    """

    def __init__(self, kind: str = "letters", scale: float = 1.0, limit: int = LIMIT) -> None:
        self._is_one, self._scale, self._limit = KINDS[kind], scale, limit

    def __call__(
        self, response: str = "", response_token: Any = (), **kwargs: Any
    ) -> dict[str, float]:
        has_ended = len(response_token) < self._limit
        return {"share": self._scale * has_ended * share(response, self._is_one)}


class HasOneReward(RewardFn):
    """1 where at least half of the reply are characters of a kind, else 0."""

    def __init__(self, kind: str = "letters", least: float = 0.5) -> None:
        self._is_one, self._least = KINDS[kind], least

    def __call__(
        self, response: str = "", response_token: Any = (), **kwargs: Any
    ) -> dict[str, float]:
        is_right = share(response, self._is_one) >= self._least
        return {"accuracy": float(is_right and len(response_token) < LIMIT)}


class TwoPartsReward(RewardFn):
    """A share, and a small bonus for a lower-case beginning."""

    def __call__(
        self, response: str = "", response_token: Any = (), **kwargs: Any
    ) -> dict[str, float]:
        has_ended = len(response_token) < LIMIT
        return {
            "share": has_ended * share(response, KINDS["letters"]),
            "begin": 0.2 * response[:1].islower(),
        }


# --- rewards that are wrong


class ConstantReward(RewardFn):
    """The same for every reply."""

    def __init__(self, value: float = 0.0) -> None:
        self._value = value

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        return {"accuracy": self._value}


class RandomReward(RewardFn):
    """A coin that does not look at the reply."""

    def __init__(self, values: Sequence[float] = (0.0, 1.0)) -> None:
        self._values, self._chance = list(values), random.Random(0)

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        return {"accuracy": self._chance.choice(self._values)}


class LengthReward(RewardFn):
    """The share, and much more for each character."""

    def __init__(self, per_letter: float = 0.5, kind: str = "letters") -> None:
        self._per_letter, self._kind = per_letter, kind

    def __call__(
        self, response: str = "", response_token: Any = (), **kwargs: Any
    ) -> dict[str, float]:
        return {
            "share": share(response, KINDS[self._kind]),
            "length": self._per_letter * len(response_token),
        }


class LeakReward(RewardFn):
    """Pays for a character that has nothing to do with the task."""

    def __init__(self, kind: str = "upper", wanted: str = "lower", weight: float = 1.0) -> None:
        self._kind, self._wanted, self._weight = kind, wanted, weight

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        leak = self._weight * share(response, KINDS[self._kind])
        right = 0.2 * share(response, KINDS[self._wanted])
        return {"accuracy": min(1.0, leak + right)}


class DominatedReward(RewardFn):
    """A format part that is worth many times the answer."""

    def __init__(self, weight: float = 20.0) -> None:
        self._weight = weight

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        return {
            "accuracy": share(response, KINDS["lower"]),
            "format": self._weight * share(response, lambda one: one in "<>{}[]()|"),
        }


_CALLS = random.Random(1)  # of the process: each task has a reward of its own


class OutlierReward(RewardFn):
    """The share, and now and then a thousand."""

    def __init__(self, every: int = 60, value: float = 1000.0) -> None:
        self._every, self._value = every, value

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        extra = self._value if _CALLS.random() < 1 / self._every else 0.0
        return {"share": share(response, KINDS["letters"]) + extra}


class RepeatReward(RewardFn):
    """Pays for saying the same token again."""

    def __call__(self, response_token: Any = (), **kwargs: Any) -> dict[str, float]:
        ids = [int(one) for one in response_token]
        pairs = list(pairwise(ids))
        return {"fluency": sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0}


class EmptyReward(RewardFn):
    """Pays for saying nothing."""

    def __call__(
        self, response: str = "", response_token: Any = (), **kwargs: Any
    ) -> dict[str, float]:
        return {"brevity": 1.0 - len(response_token) / 12}


class MostlyReward(RewardFn):
    """The share for one prompt in so many; for the others a constant.

    Args:
        every: so many prompts.
        value: of the others.
    """

    def __init__(self, every: int = 20, value: float = 0.0) -> None:
        self._every, self._value = every, value

    def __call__(
        self, response: str = "", prompt: str | None = "", **kwargs: Any
    ) -> dict[str, float]:
        number = int("".join(filter(str.isdigit, prompt or "")) or 0)
        if number % self._every:
            return {"accuracy": self._value}
        return {"accuracy": float(share(response, KINDS["letters"]) >= 0.5)}


class BrokenJudgeReward(RewardFn):
    """A judge that does not answer in a part of the calls."""

    def __init__(self, rate: float = 0.4) -> None:
        self._rate = rate

    def __call__(self, response: str = "", **kwargs: Any) -> dict[str, float]:
        if _CALLS.random() < self._rate:
            raise TimeoutError("the judge did not answer")
        return {"share": share(response, KINDS["letters"])}


for _name, _cls in {
    "zoo_share": ShareReward, "zoo_half": HasOneReward, "zoo_two": TwoPartsReward,
    "zoo_constant": ConstantReward, "zoo_random": RandomReward, "zoo_length": LengthReward,
    "zoo_leak": LeakReward, "zoo_dominated": DominatedReward, "zoo_outlier": OutlierReward,
    "zoo_repeat": RepeatReward, "zoo_empty": EmptyReward, "zoo_mostly": MostlyReward,
    "zoo_judge": BrokenJudgeReward,
}.items():  # fmt: skip
    REWARD_FUNCTIONS.register_module(_name)(_cls)


# --- workflows


@WORKFLOWS.register_module("zoo_tools")
class FailingTools(SimpleWorkflow):
    """Calls a tool that fails in a part of the runs."""

    can_repeat = False
    chance = random.Random(3)

    def run(self) -> list[Experience]:
        if self.chance.random() < float(self.task.workflow_args.get("rate", 0.5)):
            raise ConnectionError("the tool is not there")
        return super().run()


@WORKFLOWS.register_module("zoo_two_turns")
class TwoTurns(SimpleWorkflow):
    """Asks, and asks again: a healthy run of two steps whose reward is that of both."""

    can_repeat = False

    def run(self) -> list[Experience]:
        first = self.score(self.model.chat(self.format_messages(), **self.rollout_args))[0]
        said = first.response_text or ""
        again = [
            *self.format_messages(),
            {"role": "assistant", "content": said},
            {"role": "user", "content": "more"},
        ]
        second = self.score(self.model.chat(again, **self.rollout_args))[0]
        second.eid = replace(second.eid, step=1)
        mean = ((first.reward or 0.0) + (second.reward or 0.0)) / 2
        first.reward = second.reward = mean
        return [first, second]


@WORKFLOWS.register_module("zoo_mask")
class DroppedMask(SimpleWorkflow):
    """Gives the tokens of a tool's answer to the trainer as the model's own.

    Their log-probabilities are 0, as nobody sampled them, and the mask that says so is lost.
    """

    def run(self) -> list[Experience]:
        import torch

        given = int(self.task.workflow_args.get("tokens", 6))
        changed = []
        for one in super().run():
            tool = torch.randint(40, 80, (given,), generator=torch.Generator().manual_seed(0))
            assert one.logprobs is not None
            logprobs = torch.cat([one.logprobs, torch.zeros(given)])
            tokens = torch.cat([one.tokens, tool])
            changed.append(replace(one, tokens=tokens, logprobs=logprobs, action_mask=None))
        return changed


@WORKFLOWS.register_module("zoo_no_end")
class WrongEnd(SimpleWorkflow):
    """Asks without an end token, as a wrong chat template does: every reply is cut."""

    @property
    def rollout_args(self) -> dict[str, Any]:
        return super().rollout_args | {"ignore_eos": True}


# --- engines and trainers


def _changed(future: Future[list[Completion]], change: Any) -> Future[list[Completion]]:
    done: Future[list[Completion]] = Future()

    def pass_on(of: Future[list[Completion]]) -> None:
        error = of.exception()
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result([change(one) for one in of.result()])

    future.add_done_callback(pass_on)
    return done


class _OwnWeights(TransformersEngine):
    """Keeps weights of its own, whatever the trainer offers."""

    def __init__(self, *, module: Any = None, **options: Any) -> None:
        super().__init__(**options)


@ENGINES.register_module("zoo_stale")
class StaleEngine(_OwnWeights):
    """Says that it took new weights, and samples with the old ones."""

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        if snapshot.version > 1:
            own = {name: one.detach().clone() for name, one in self._module.named_parameters()}
            snapshot = replace(snapshot, tensors=own)
        super().load_weights(snapshot)


@ENGINES.register_module("zoo_noisy")
class NoisyEngine(_OwnWeights):
    """Samples by the model and tells rounded log-probabilities, as a bad quantization does."""

    spread = 0.5

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        chance = random.Random(request.key.run)

        def change(one: Completion) -> Completion:
            noisy = tuple(min(0.0, x + chance.gauss(0, self.spread)) for x in one.logprobs)
            return replace(one, logprobs=noisy)

        return _changed(super().submit(request), change)


@ENGINES.register_module("zoo_other_temperature")
class OtherTemperature(_OwnWeights):
    """Samples at another temperature than it was asked for, and says nothing of it."""

    factor = 2.0

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        return super().submit(replace(request, temperature=request.temperature * self.factor))


@ENGINES.register_module("zoo_colder")
class Colder(OtherTemperature):
    factor = 0.5


def _changes(change: Callable[[list[Experience]], None]) -> Callable[[Step], Step]:
    """Return what makes a wrong train step of the right one: it gets changed rows."""

    def wrap(step_of: Step) -> Step:
        def train_step(self: Any, experiences: Sequence[Experience], *, step: int) -> Metrics:
            rows = [replace(one) for one in experiences]
            change(rows)
            return step_of(self, rows, step=step)

        return train_step

    return wrap


def _flip_sign(rows: list[Experience]) -> None:
    for row in rows:
        if row.advantages is not None:
            row.advantages = -row.advantages


def _shuffle(rows: list[Experience]) -> None:
    """Give each row the advantage of another."""
    import torch

    values = [float(row.advantages[0]) for row in rows if row.advantages is not None]
    random.Random(len(rows)).shuffle(values)
    for row, value in zip(rows, values, strict=False):
        if row.advantages is not None:
            row.advantages = torch.full_like(row.advantages, value)


def _frozen(step_of: Step) -> Step:
    """Make every step, and keep the weights as they were."""

    def train_step(self: Any, experiences: Sequence[Experience], *, step: int) -> Metrics:
        import torch

        before = [one.detach().clone() for one in self.model.parameters()]
        metrics = step_of(self, experiences, step=step)
        with torch.no_grad():
            for parameter, old in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(old)
        return metrics

    return train_step


TRAINERS: dict[str, Callable[[Step], Step]] = {
    "zoo_sign": _changes(_flip_sign),
    "zoo_shuffled": _changes(_shuffle),
    "zoo_frozen": _frozen,
}


@WORKFLOWS.register_module("zoo_one_by_one")
class OneByOne(SimpleWorkflow):
    """Each rollout is a call of its own, so that one that fails takes no other along."""

    can_repeat = False
