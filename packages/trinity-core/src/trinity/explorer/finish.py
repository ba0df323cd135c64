"""Check what a workflow returned, fill in what the runtime knows, and take out what failed."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import torch

from trinity.common.experience import EID, Experience
from trinity.common.rewards.calling import NOT_JUDGED
from trinity.common.secrets import masked, masked_values
from trinity.common.value_checks import MAX_NAME, TokenLimits, check_info, shortened
from trinity.common.workflows.multi_turn_workflow import CONTEXT_FILLED
from trinity.common.workflows.workflow import number_of, reward_of
from trinity.errors import RunFailedError, WorkflowError
from trinity.explorer.failure import not_judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from trinity.explorer.requests import RolloutRequest, RolloutResult

EARLIER_CHAIN, ENGINE = "is_earlier_chain", "engine"  # in info
SIGNALS = ("reward", "token_level_reward", "teacher_logprobs")  # one of them is trained on
ANY_TOKENS = TokenLimits(max_len=sys.maxsize, vocab=None)
ROUNDING = 1e-3  # how far above 0 a log-probability may lie that was computed in half precision


def finished(
    returned: Any,
    *,
    request: RolloutRequest,
    version: int,
    limits: TokenLimits = ANY_TOKENS,
    engine: str = "engine-0",
    earlier_chains: Callable[[Experience], list[Experience]] = lambda _: [],
) -> list[Experience]:
    """Return the experiences with their eids, by run and step; as given, if groups share steps.

    Where a chat template broke a conversation, its earlier chains are added before it, with the
    same run, step and reward. An experience without texts was built by the workflow itself: it was
    sampled at the task's temperature.

    Args:
        returned: what the workflow returned; anything at all.
        request: the request that it was called with.
        version: of the oldest weights that answered, for experiences that do not say theirs.
        limits: of the tokens of an experience that is to be trained.
        engine: the name of the engine that answered.
        earlier_chains: gives what the model left out of an experience.

    Raises:
        WorkflowError: it is no list of experiences, one was returned before, lengths disagree,
            token ids or numbers are none, a reward is missing, or there are more or fewer runs
            than were ordered.
    """
    experiences = _checked_list(returned)
    HANDED_OVER.check(experiences)
    if request.task.is_eval:  # nobody trains on it
        limits = ANY_TOKENS
    for place, experience in enumerate(experiences):
        _check(experience, place=place, is_eval=request.task.is_eval, limits=limits)
        if experience.prompt_text is None and experience.response_text is None:
            experience.temperature = request.task.rollout_args.temperature or 1.0
        experience.info = masked_values(experience.info)
        experience.info.setdefault("model_version", version)
        experience.info.setdefault("task_index", dict(request.task.index))
        experience.info.setdefault("workflow", request.workflow.name)
        experience.info.setdefault(ENGINE, engine)
        if experience.reward is not None and (agent := experience.info.get("adapter")):
            experience.metrics.setdefault(f"{agent}_reward", experience.reward)
    check_rows(experiences)
    _fill_eids(experiences, request=request)
    whole: list[Experience] = []
    for experience in experiences:
        whole += [*_earlier(experience, earlier_chains(experience)), experience]
    unshared(whole)
    HANDED_OVER.add(experiences)
    are_apart = len({(e.eid.run, e.eid.step, e.eid.suffix) for e in whole}) == len(whole)
    return sorted(whole, key=lambda one: (one.eid.run, one.eid.step if are_apart else 0))


def _earlier(experience: Experience, chains: list[Experience]) -> list[Experience]:
    """Return the earlier chains as parts of the same run."""
    reward = experience.reward
    if reward is None and experience.token_level_reward is not None:
        reward = float(experience.token_level_reward.sum())
    for place, chain in enumerate(chains):
        chain.reward = reward
        chain.eid = replace(experience.eid, suffix=f"chain-{place}")
        own = {name: experience.info[name] for name in ("task_index", "workflow", ENGINE)}
        chain.info |= own | {EARLIER_CHAIN: True}
    return chains


def _checked_list(returned: Any) -> list[Experience]:
    wanted = "run() must return a non-empty list of Experience."
    if not isinstance(returned, (list, tuple)):
        raise WorkflowError(f"run() returned {_described(returned)}. {wanted}")
    if not returned:
        raise WorkflowError(f"run() returned an empty list. {wanted}")
    for place, item in enumerate(returned):
        if not isinstance(item, Experience):
            raise WorkflowError(f"item {place} of the list is {_described(item)}. {wanted}")
    return list(returned)


def _check(experience: Experience, *, place: int, is_eval: bool, limits: TokenLimits) -> None:
    try:
        experience.__post_init__()  # fields may have been set since it was built
    except (TypeError, ValueError) as e:
        raise WorkflowError(f"experience {place}: {e}. Correct what run() returns.") from e
    experience.reward = reward_of(experience.reward, what=f"experience {place}: reward")
    check_info(experience.info, what=f"experience {place}")
    experience.metrics = _numbers(experience.metrics or {}, place=place)
    problem = _wrong_tokens(experience, is_eval=is_eval, limits=limits)
    if problem := problem or _wrong_numbers(experience):
        raise WorkflowError(f"experience {place}: {problem}")
    has_signal = NOT_JUDGED in experience.info or any(
        getattr(experience, name) is not None for name in SIGNALS
    )
    may_be_measured = is_eval and bool(experience.metrics)  # an evaluation compares numbers alone
    if not has_signal and not may_be_measured:
        raise WorkflowError(f"experience {place}: reward is None. Set it, or raise an error.")


def _wrong_tokens(experience: Experience, *, is_eval: bool, limits: TokenLimits) -> str:
    """Return in words what is wrong with the tokens; an empty string if nothing."""
    num, is_cut = experience.tokens.shape[0], experience.truncate_status == "prompt_truncated"
    may_be_empty = is_eval or is_cut or experience.is_preference_pair
    if experience.prompt_length == num and not may_be_empty:
        return (
            f"prompt_length is {num}, the number of all tokens, so there is no response. Set it "
            "to the number of tokens before the first sampled token."
        )
    ids = experience.tokens.tolist()
    answers = [one.tolist() for one in (experience.chosen, experience.rejected) if one is not None]
    if answers:
        num, ids = experience.prompt_length + max(map(len, answers)), sum(answers, ids)
    return limits.problem(length=num, lowest=min(ids), highest=max(ids))


def _wrong_numbers(experience: Experience) -> str:
    """Return in words which number is none; an empty string if all are."""
    for name in ("reward", "logprobs", "token_level_reward", "teacher_logprobs"):
        value = getattr(experience, name)
        if value is not None and not _is_finite(value):
            shown = value if isinstance(value, (int, float)) else "partly NaN or infinite"
            return (
                f"{name} is {shown}. Return finite numbers, or raise trinity.errors.EnvError if "
                "the rollout has no reward."
            )
    if experience.logprobs is not None and experience.logprobs.shape[0]:
        highest = max(experience.logprobs.tolist())
        if highest > ROUNDING:
            return (
                f"logprobs contains {highest:.4g}, but log-probabilities are at most 0. Return the "
                "engine's log-probabilities of the sampled tokens."
            )
    return ""


def _numbers(metrics: dict[str, Any], *, place: int) -> dict[str, float]:
    """Return the metrics as plain numbers, which a checkpoint can hold."""
    remedy = "Put other values into info."
    return {
        masked(shortened(str(name), MAX_NAME)): number_of(
            value, what=f"experience {place}: metrics[{name!r}]", remedy=remedy
        )
        for name, value in metrics.items()
    }


def _is_finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        # Torch gives up the interpreter for such a check; a list of numbers does not.
        return all(map(math.isfinite, value.flatten().tolist()))
    return math.isfinite(value)


def _fill_eids(experiences: list[Experience], *, request: RolloutRequest) -> None:
    batch = int(request.key.batch) if request.key.batch.isdecimal() else request.key.batch
    runs = _runs(experiences, request=request)
    by_run: dict[tuple[int | str, int], list[Experience]] = {}
    for experience, run in zip(experiences, runs, strict=True):
        by_run.setdefault((_group(experience, request=request), run), []).append(experience)
    for (group, run), own in by_run.items():
        given = [(experience.eid.step, experience.eid.suffix) for experience in own]
        places = given if len(set(given)) == len(given) else [(n, "") for n in range(len(own))]
        for experience, (step, suffix) in zip(own, places, strict=True):
            experience.eid = EID(batch, group, run, step, suffix)


def _group(experience: Experience, *, request: RolloutRequest) -> int | str:
    """Return the name of the group: the task's, or one below it that the workflow gave.

    ``experience.eid.task = f"{self.task.task_id}-verdicts"`` keeps experiences of another kind from
    being compared with the task's own. Those of different adapters are compared apart anyway.
    """
    own, given = request.key.task, experience.eid.task
    group = given if isinstance(given, str) and given.startswith(f"{own}-") else own
    adapter = experience.info.get("adapter")
    return f"{group}".removesuffix(f"-{adapter}") + f"-{adapter}" if adapter else group


def _runs(experiences: list[Experience], *, request: RolloutRequest) -> list[int]:
    """Return the run of each experience.

    A call that makes one run has one number. A call that makes several numbers them in ``eid.run``,
    from 0 or from ``run_id_base``; one that does not returns one experience for each.
    """
    first, count = request.key.run, request.num_runs
    if count == 1:
        return [first] * len(experiences)
    given = [experience.eid.run for experience in experiences]
    if len(set(given)) == 1 and len(experiences) == count:
        return list(range(first, first + count))
    start = 0 if set(given) == set(range(count)) else first
    if set(given) != set(range(start, start + count)):
        raise WorkflowError(
            f"requested {count} rollouts, got experiences of {len(set(given))}. A workflow with "
            f"can_repeat runs repeat_times rollouts, and numbers them in eid.run if a rollout has "
            f"more than one experience."
        )
    return [run - start + first for run in given]


def _described(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def without_cut_runs(results: Sequence[RolloutResult], *, can_fail: bool) -> list[RolloutResult]:
    """Return the reports, each run that could not be judged in one of its own, as failed.

    Args:
        results: of calls, each of one run or of several.
        can_fail: a run may fail; otherwise the first one stops the whole.

    Raises:
        RunFailedError: a run could not be judged, and none may fail.
    """
    apart = [report for result in results for report in _separated(result)]
    for report in () if can_fail else apart:
        if report.failure is not None and not report.failure.is_cut:
            why = "a rollout failed, and explorer.on_failed_run is fail"
            raise RunFailedError(f"{why}. {report.failure.line()}")
    return apart


def _separated(result: RolloutResult) -> list[RolloutResult]:
    marked = [exp for exp in result.experiences if NOT_JUDGED in exp.info]
    said = {exp.eid.run: str(exp.info[NOT_JUDGED]) for exp in marked}
    if not said:
        return [result]
    request, kept = result.request, []
    if num_kept := request.num_runs - len(said):
        good = tuple(exp for exp in result.experiences if exp.eid.run not in said)
        kept = [replace(result, request=replace(request, num_runs=num_kept), experiences=good)]
    cut = [
        replace(
            result,
            request=(own := replace(request, key=replace(request.key, run=run), num_runs=1)),
            experiences=(),
            failure=not_judged(own, message=message, attempt=len(result.retried) + 1),
        )
        for run, message in said.items()
    ]
    return [*kept, *cut]


def one_time_warnings(experiences: Sequence[Experience]) -> dict[str, str]:
    """Return what is to be said of these experiences, by what it is about."""
    said = {}
    broken = {exp.eid.rid for exp in experiences if EARLIER_CHAIN in exp.info}
    cut = {exp.eid.rid for exp in experiences if exp.truncate_status == "prompt_truncated"}
    filled = {exp.eid.rid for exp in experiences if CONTEXT_FILLED in exp.metrics}
    if broken:
        said["broken"] = (
            f"the chat template changes earlier messages (for example, it removes thinking) in "
            f"{len(broken)} of this step's rollouts. Each unbroken chain of replies becomes an "
            f"experience with the rollout's reward; the rollout counts once in its group. Not "
            f"logged for later steps."
        )
    if cut:
        said["cut"] = (
            f"in {len(cut)} of this step's rollouts a conversation exceeds the context. Its prompt "
            f"was truncated, and later replies are not trained on. Raise model.max_model_len or "
            f"model.max_prompt_tokens, or use fewer or shorter turns. Not logged for later steps."
        )
    if filled:
        said["filled"] = (
            f"in {len(filled)} of this step's rollouts the conversation fills the context, so the "
            f"reward is 0 instead of the workflow's. Raise model.max_model_len, or use fewer or "
            f"shorter turns. The metric context_filled counts them. Not logged for later steps."
        )
    return said


Key = TypeVar("Key", int, tuple[int, int, int])

REMEDY = "Return a separate experience for each rollout, for example copy.deepcopy()."
TENSORS = (  # that a later step may change in place
    "action_mask",
    "logprobs",
    "token_level_reward",
    "teacher_logprobs",
    "advantages",
    "returns",
)


class DuplicateCheck:
    """Remembers what was returned, as long as somebody holds it."""

    def __init__(self) -> None:
        self._alive: WeakValueDictionary[int, Experience] = WeakValueDictionary()

    def check(self, experiences: Sequence[Experience]) -> None:
        """Refuse what was returned before, and what stands there twice.

        Raises:
            WorkflowError: the message says which.
        """
        seen: dict[int, int] = {}
        for place, experience in enumerate(experiences):
            if self._alive.get(id(experience)) is experience:
                raise WorkflowError(
                    f"experience {place} is the same object that an earlier call returned, for "
                    f"rollout {experience.eid.rid}. {REMEDY}"
                )
            _refuse_twice(seen, id(experience), place)

    def add(self, experiences: Sequence[Experience]) -> None:
        """Take note of what goes on to be trained."""
        for experience in experiences:
            self._alive[id(experience)] = experience


def check_rows(experiences: Sequence[Experience]) -> None:
    """Refuse two experiences whose tokens are one piece of memory: they are one row.

    Raises:
        WorkflowError: the message says which.
    """
    seen: dict[tuple[int, int, int], int] = {}
    for place, experience in enumerate(experiences):
        if not experience.is_preference_pair:
            _refuse_twice(seen, _memory(experience), place)


def unshared(experiences: Sequence[Experience]) -> None:
    """Give each experience tensors of its own, where two of a list lie in one memory."""
    if len(experiences) < 2:
        return
    taken: set[int] = set()
    for experience in experiences:
        for name, value in _tensors(experience):
            where = value.untyped_storage().data_ptr()
            if where in taken:
                setattr(experience, name, value.clone())
            taken.add(where)


def _refuse_twice(seen: dict[Key, int], key: Key, place: int) -> None:
    first = seen.setdefault(key, place)
    if first != place:
        raise WorkflowError(f"experiences {first} and {place} are the same object. {REMEDY}")


def _memory(experience: Experience) -> tuple[int, int, int]:
    """Return where the tokens lie, and which of them are the response."""
    tokens = experience.tokens
    return tokens.data_ptr(), len(tokens), experience.prompt_length


def _tensors(experience: Experience) -> Iterator[tuple[str, Tensor]]:
    for name in TENSORS:
        value: Tensor | None = getattr(experience, name)
        if value is not None and value.numel():
            yield name, value


HANDED_OVER = DuplicateCheck()  # one for the process: runners of one class share its workflows
