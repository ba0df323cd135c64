"""What every sample strategy must hold.

    source  | 0 1 2 3 | 4 5 6 7 | 8 9 |          three batches, the last a short one

``args`` are the constructor's. What a strategy adds from an auxiliary buffer (``sft_dataset``) is
its own affair: only the experiences of the run's own buffer are counted.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from trinity_testing.builders import an_experience
from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.numbers import odd_metric
from trinity_testing.sources import ListSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.extend.component import Component

__all__ = ["checks"]

BATCH_SIZE = 4
NUM_EXPERIENCES = 10
READ_TIMEOUT_S = 0.5
MAX_STEPS = 40  # a strategy that takes part of its batches elsewhere needs more than three
OWN, AUXILIARY = "own", "sft_dataset"


def loses_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy that leaves out an experience of its buffer."""
    seen = _ids(_all_batches(_bound(component, context, _own_buffer())))
    lost = [uid for uid in _ids([_experiences()]) if uid not in seen]
    return Finding(f"of {NUM_EXPERIENCES} experiences, {_listed(lost)} is lost") if lost else None


def gives_nothing_twice(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy that gives an experience of its buffer again."""
    seen = Counter(_ids(_all_batches(_bound(component, context, _own_buffer()))))
    twice = [uid for uid, count in seen.items() if count > 1]
    return Finding(f"{_listed(twice)} is given more than once") if twice else None


def state_round_trips(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy whose rest differs after its state went into a new instance."""
    whole = [_ids([batch]) for batch in _all_batches(_bound(component, context, _own_buffer()))]
    source = _own_buffer()
    first = _bound(component, context, source)
    begun = [_ids([first.sample(1)[0]])]
    try:
        state = json.loads(json.dumps(first.state_dict()))
    except TypeError as error:
        return Finding(f"json cannot hold its state_dict: {error}")
    second = _bound(component, context, source)
    second.load_state_dict(state)
    resumed = begun + [_ids([batch]) for batch in _all_batches(second, start=2)]
    if resumed != whole:
        return Finding(f"without a stop it gives {whole}, with one after step 1 {resumed}")
    return None


def gives_a_short_last_batch(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy that gives batches of another size than it was told, or a padded last one."""
    batches = _all_batches(_bound(component, context, _own_buffer()))
    sizes = [len(batch) for batch in batches]
    if any(size != BATCH_SIZE for size in sizes[:-1]):
        return Finding(f"told to give batches of {BATCH_SIZE}, it gave {sizes}")
    own = [len(_ids([batch])) for batch in batches]
    if own and sum(own) % own[0] and own[-1] != sum(own) % own[0]:
        return Finding(f"{NUM_EXPERIENCES} experiences became batches with {own} of them")
    return None


def ends(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy that does not say, again and again, that nothing is left."""
    strategy = _bound(component, context, _own_buffer())
    _all_batches(strategy)
    return _says_the_end(strategy, "after the last experience", steps=2)


def handles_an_empty_step(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy that makes a batch of nothing."""
    return _says_the_end(_bound(component, context, ListSource([])), "of an empty buffer", steps=1)


def loses_nothing_by_a_timeout(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy that waits longer than told, or loses what it held when a read was late."""
    punctual = _ids(_all_batches(_bound(component, context, _own_buffer())))
    source = ListSource(_experiences(), late_reads=(0, 2))
    strategy = _bound(component, context, source)
    batches: list[list[Experience]] = []
    num_late = 0
    for step in range(1, MAX_STEPS):
        try:
            batches.append(strategy.sample(step)[0])
        except TimeoutError:
            num_late += 1
        except StopIteration:
            break
    if max(source.timeouts_s, default=0.0) > READ_TIMEOUT_S:
        longest = max(source.timeouts_s)
        return Finding(f"told to wait {READ_TIMEOUT_S} s at most, it waits {longest} s")
    if not num_late:
        return Finding("the buffer was late twice, and no TimeoutError was raised")
    if sorted(_ids(batches)) != sorted(punctual):
        return Finding(f"with two late reads, it gives {_ids(batches)}, else {punctual}")
    return None


def metrics_are_plain(component: Component, context: CheckContext) -> Finding | None:
    """Find metrics that are no plain finite floats."""
    _, metrics = _bound(component, context, _own_buffer()).sample(1)
    problem = odd_metric(metrics)
    return Finding(problem) if problem else None


def keeps_the_order_that_it_claims(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy that provides ``in_order`` and gives rows in another order."""
    if "in_order" not in component.spec.provides:
        raise Skipped("it does not claim 'in_order'")
    given = _ids(_all_batches(_bound(component, context, _own_buffer())))
    return Finding(f"it gives the rows {given}") if given != sorted(given) else None


def gives_what_was_put_back(component: Component, context: CheckContext) -> Finding | None:
    """Find a strategy that gives nothing of what was put back into it again."""
    strategy = _bound(component, context, _own_buffer())
    batch, _ = strategy.sample(1)
    strategy.put_back(batch)
    lost = set(_ids([batch]))
    if lost and not lost & set(_ids(_all_batches(strategy))):
        return Finding(f"of {len(lost)} experiences that were put back, none is given again")
    return None


def _bound(component: Component, context: CheckContext, source: ListSource) -> Any:
    strategy = context.build(component)
    experts = [_experience(number, kind=AUXILIARY) for number in range(MAX_STEPS * BATCH_SIZE)]
    strategy.bind(
        {"experience_buffer": source, AUXILIARY: ListSource(experts)},
        train_batch_size=BATCH_SIZE,
        read_timeout_s=READ_TIMEOUT_S,
    )
    return strategy


def _own_buffer() -> ListSource:
    return ListSource(_experiences())


def _experiences() -> list[Experience]:
    return [_experience(number, kind=OWN) for number in range(NUM_EXPERIENCES)]


def _experience(number: int, *, kind: str) -> Experience:
    version = number // 2  # never so old that a strategy may leave it out
    return an_experience(
        batch=kind, task=number, reward=float(number % 2), info={"model_version": version}
    )


def _all_batches(strategy: Any, *, start: int = 1) -> list[list[Experience]]:
    batches: list[list[Experience]] = []
    for step in range(start, start + MAX_STEPS):
        try:
            batches.append(strategy.sample(step)[0])
        except StopIteration:
            break
    return batches


def _says_the_end(strategy: Any, when: str, *, steps: int) -> Finding | None:
    for step in range(NUM_EXPERIENCES, NUM_EXPERIENCES + steps):
        try:
            batch, _ = strategy.sample(step)
        except StopIteration:
            continue
        return Finding(f"{when}, it returned {len(batch)} experiences and raised no StopIteration")
    return None


def _ids(batches: Sequence[Sequence[Experience]]) -> list[int]:
    """Return the numbers of the experiences that come from the run's own buffer."""
    own = [exp for batch in batches for exp in batch if exp.eid.batch == OWN]
    return [int(exp.eid.task) for exp in own]


def _listed(numbers: Sequence[int]) -> str:
    return "number " + " and ".join(map(str, numbers[:3])) + (" ..." if len(numbers) > 3 else "")


KINDS = frozenset({"sample_strategy"})
checks = (
    Check(
        id="sample_strategy.nothing_lost",
        function=loses_nothing,
        remedy="Give every experience that was read; keep what is left over for the next step.",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.nothing_twice",
        function=gives_nothing_twice,
        remedy="Forget what you gave; reuse is the replay buffer's.",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.state",
        function=state_round_trips,
        remedy="Keep in state_dict() all that the next sample() depends on, or read no further "
        "than the batch.",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.short_batch",
        function=gives_a_short_last_batch,
        remedy="Ask for train_batch_size, and give what is there when the buffer ends.",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.ends",
        function=ends,
        remedy="Let the StopIteration of source.read() through.",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.empty",
        function=handles_an_empty_step,
        remedy="Let the StopIteration of source.read() through; an empty list is no batch.",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.timeout",
        function=loses_nothing_by_a_timeout,
        remedy="Give read_timeout_s to source.read(), let its TimeoutError through, and keep what "
        "you hold.",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.order",
        function=keeps_the_order_that_it_claims,
        remedy="Return what source.read() gives as it is, or do not provide 'in_order'.",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.put_back",
        function=gives_what_was_put_back,
        remedy="Give it to the source's put_back(), or keep it for the next sample().",
        kinds=KINDS,
    ),
    Check(
        id="sample_strategy.metrics_plain",
        function=metrics_are_plain,
        remedy="Return plain floats as metrics.",
        kinds=KINDS,
    ),
)
