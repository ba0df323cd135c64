"""What every workflow must hold.

``args`` of a workflow are fields of its ``Task`` (``raw_task``, ``workflow_args``, ...), and:

    answers               what the scripted engine says, again and again; one should end an episode
    other_raw_task        the row of a second task
    num_auxiliary_models  further scripted models, 0 unless given
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from trinity.common.experience import Experience
from trinity.errors import TrinityError

from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.leftovers import Holdings, what_stays
from trinity_testing.checks.sampled_tokens import trained_spans, unsampled
from trinity_testing.checks.trial import Trial, difference, in_thread, trial
from trinity_testing.engines import script_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.ports import GenerationRequest
    from trinity.extend.component import Component


__all__ = ["checks"]

MEETING_S = 5.0  # how long one of two runs waits for the other
NUM_SAMPLES_BEFORE_FAILURE = (0, 1)
NUM_RUNS, FIRST_RUN = 3, 2  # of a workflow with can_repeat


def runs_on_the_scripted_engine(component: Component, context: CheckContext) -> Finding | None:
    """Find a workflow that returns no list of experiences with rewards."""
    attempt = trial(component, context)
    experiences = in_thread(attempt.run)()
    if not isinstance(experiences, list) or not experiences:
        return Finding(f"it returned {experiences!r:.80}, not a list of experiences")
    for place, experience in enumerate(experiences):
        if not isinstance(experience, Experience):
            return Finding(f"item {place} is a {type(experience).__name__}, not an Experience")
        if experience.token_level_reward is None and not _is_finite(experience.reward):
            return Finding(f"experience {place} has the reward {experience.reward}")
    if not attempt.engine.exchanges:
        return Finding("it never asked the model", severity="warning")
    return None


def trains_on_the_engines_tokens(component: Component, context: CheckContext) -> Finding | None:
    """Find a trained token, or its log-probability, that no engine sampled."""
    attempt = trial(component, context)
    for place, experience in enumerate(in_thread(attempt.run)()):
        for span in trained_spans(experience):
            problem = unsampled(experience, span, attempt.engine.exchanges)
            if problem:
                return Finding(f"experience {place}: {problem}")
    return None


def has_agreeing_lengths(component: Component, context: CheckContext) -> Finding | None:
    """Find an experience whose parts differ in length, or that has nothing to train on."""
    for place, experience in enumerate(in_thread(trial(component, context).run)()):
        num = len(experience.tokens) - experience.prompt_length
        if experience.prompt_length < 1 or num < 1:
            return Finding(f"experience {place} has no prompt or no response")
        for name in ("logprobs", "action_mask", "token_level_reward"):
            value = getattr(experience, name)
            if value is not None and len(value) != num:
                return Finding(f"experience {place} has {len(value)} {name} for {num} tokens")
        if experience.logprobs is None:
            return Finding(f"experience {place} has no logprobs")
        if experience.action_mask is not None and not experience.action_mask.any():
            return Finding(f"experience {place} masks its whole response", severity="warning")
    return None


def makes_the_runs_it_is_asked_for(component: Component, context: CheckContext) -> Finding | None:
    """Find a workflow that repeats itself and makes another number of runs than asked for."""
    attempt = trial(component, context)
    if not attempt.workflow.can_repeat:
        raise Skipped("it makes one run a call")
    attempt.workflow.set_repeat_times(NUM_RUNS, FIRST_RUN)
    runs = sorted({experience.eid.run for experience in in_thread(attempt.run)()})
    wanted = list(range(FIRST_RUN, FIRST_RUN + NUM_RUNS))
    if runs != wanted:
        return Finding(f"asked for the runs {wanted}, it returned experiences of the runs {runs}")
    return None


def reset_equals_a_new_instance(component: Component, context: CheckContext) -> Finding | None:
    """Find a workflow that remembers its last task after ``reset``."""
    attempt = trial(component, context)
    if not attempt.workflow.resettable():
        raise Skipped("it cannot be reset")
    in_thread(attempt.run)()
    fresh = trial(component, context, is_other=True)
    attempt.reset(fresh.task)
    words = difference(in_thread(attempt.run)(), in_thread(fresh.run)())
    return Finding(f"after reset and new differ: {words}") if words else None


def two_at_once_do_not_disturb_each_other(
    component: Component, context: CheckContext
) -> Finding | None:
    """Find a workflow whose instances share state."""
    alone = [in_thread(trial(component, context, is_other=other).run)() for other in (False, True)]
    pair = [trial(component, context, is_other=other) for other in (False, True)]
    meeting = threading.Barrier(len(pair))
    for attempt in pair:
        attempt.engine.before_answer = _meet_once(meeting)
    waiting = [in_thread(attempt.run) for attempt in pair]
    together = [wait() for wait in waiting]
    for one, other in zip(alone, together, strict=True):
        words = difference(one, other)
        if words:
            return Finding(f"alone and beside another run differ: {words}")
    return None


def failures_are_typed(component: Component, context: CheckContext) -> Finding | None:
    """Find a run that turns a failure of the engine into a reward, or into any other error."""
    for fails_at in NUM_SAMPLES_BEFORE_FAILURE:
        finding = _after_failure(trial(component, context, fails_at=fails_at))
        if finding:
            return finding
    return None


def closes_what_it_opened(component: Component, context: CheckContext) -> Finding | None:
    """Find threads, files and processes that a run leaves behind."""
    _run_and_close(trial(component, context))  # what is opened once for all is open now
    before = Holdings.now()
    _run_and_close(trial(component, context))
    stays = what_stays(before)
    return Finding(f"after the run and close(), {stays}") if stays else None


def is_deterministic(component: Component, context: CheckContext) -> Finding | None:
    """Find a workflow that differs from run to run."""
    first, second = (in_thread(trial(component, context).run)() for _ in range(2))
    words = difference(first, second)
    return Finding(f"two runs of one task differ: {words}") if words else None


def _is_finite(reward: object) -> bool:
    return isinstance(reward, (int, float)) and math.isfinite(reward)


def _meet_once(meeting: threading.Barrier) -> Callable[[GenerationRequest], None]:
    """Return a function that waits at its first call until the other run asks its engine too."""
    has_met: list[bool] = []

    def meet(_: GenerationRequest) -> None:
        if not has_met:
            has_met.append(True)
            try:
                meeting.wait(MEETING_S)
            except threading.BrokenBarrierError:  # the other run never asks, or has ended
                return

    return meet


def _after_failure(attempt: Trial) -> Finding | None:
    try:
        experiences = in_thread(attempt.run)()
    except TrinityError:
        return None
    except Exception as error:  # noqa: BLE001 -- a workflow's own code runs in here
        return Finding(f"a ModelError of the engine became {type(error).__name__}: {error}")
    if not attempt.engine.num_failures:
        return None  # it had asked for all it needed
    rewards = [getattr(experience, "reward", None) for experience in experiences or []]
    return Finding(f"the engine failed, and the run returned rewards {rewards} as if it had not")


def _run_and_close(attempt: Trial) -> None:
    try:
        in_thread(attempt.run)()
    finally:
        attempt.workflow.close()


KINDS = frozenset({"workflow"})
checks = (
    Check(
        id="workflow.runs_scripted",
        function=runs_on_the_scripted_engine,
        remedy="Return a list of Experience, each with a finite reward.",
        kinds=KINDS,
        prepare=script_tokenizer,
    ),
    Check(
        id="workflow.token_ids",
        function=trains_on_the_engines_tokens,
        remedy="Return the experiences that the model returned; never tokenise a text again.",
        kinds=KINDS,
    ),
    Check(
        id="workflow.lengths",
        function=has_agreeing_lengths,
        remedy="Give one entry for each token after the prompt.",
        kinds=KINDS,
    ),
    Check(
        id="workflow.repeats",
        function=makes_the_runs_it_is_asked_for,
        remedy="Ask for n=self.repeat_times; number eid.run from run_id_base on.",
        kinds=KINDS,
    ),
    Check(
        id="workflow.reset",
        function=reset_equals_a_new_instance,
        remedy="Set in reset() all that __init__ takes from the task; or can_reset = False.",
        kinds=KINDS,
    ),
    Check(
        id="workflow.isolation",
        function=two_at_once_do_not_disturb_each_other,
        remedy="Keep state in self, not in the class or the module.",
        kinds=KINDS,
    ),
    Check(
        id="workflow.failure_typed",
        function=failures_are_typed,
        remedy="Let ModelError through; raise EnvError where the environment fails.",
        kinds=KINDS,
    ),
    Check(
        id="workflow.cleanup",
        function=closes_what_it_opened,
        remedy="Open with 'with', or free it in close().",
        kinds=KINDS,
    ),
    Check(
        id="workflow.determinism",
        function=is_deterministic,
        remedy="Draw from random.Random(seed) with a seed that is in the task.",
        kinds=KINDS,
    ),
)
