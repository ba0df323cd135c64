"""From the explorer's experiences to the buffer: operators, advantages of groups, the write."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from trinity.algorithm.advantage_fn.base import apply_advantage
from trinity.buffer.operator_results import checked, without_feedback
from trinity.common.batch import ExperienceBatch
from trinity.common.metrics import Metrics, numbers_in, with_prefix
from trinity.common.operators import ExperienceOperatorV1
from trinity.common.value_checks import without_end
from trinity.common.workflows.recorded_env import ENVIRONMENT
from trinity.errors import BufferClosedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.algorithm.advantage_fn import AdvantageFn
    from trinity.common.experience import Experience
    from trinity.common.ports import ExperienceSink, OperatorPort, RowValues

logger = logging.getLogger(__name__)


CLOSE_S = 1.0  # so long a call that is being made is waited for


class ExperiencePipeline:
    """What happens to the experiences of an explore step before the trainer sees them.

    Args:
        operators: applied in order.
        advantage_fn: computes advantages of whole groups; None: the trainer does, or nobody.
        sink: where the experiences go.
        input_sink: also gets what the workflows returned, before the operators; None: nobody.
        plugin_digest: of the plugins in use; each experience carries it as ``info["plugins"]``.
        audit: follows rows, as ``runtime/audited_rows.py`` does; None: nobody does.
    """

    def __init__(
        self,
        operators: Sequence[OperatorPort],
        advantage_fn: AdvantageFn | None,
        sink: ExperienceSink,
        *,
        input_sink: ExperienceSink | None = None,
        plugin_digest: str = "",
        audit: Any = None,  # Any: of the runtime, which stands above
    ) -> None:
        self._audit = audit
        self._loop: asyncio.Runner | None = None  # None: no operator has awaited anything yet
        self._operators = list(operators)
        for operator in self._operators:
            if isinstance(operator, ExperienceOperatorV1):
                operator.set_auxiliary_model()
                self._finished(operator.prepare())
        self._advantage_fn = advantage_fn
        self._sink = sink
        self._input_sink = input_sink
        self._plugin_digest = plugin_digest
        self._feedback: dict[str, RowValues] = {}
        self._turn = threading.Lock()  # of the one call that writes
        self._is_closed = False
        self._said: set[tuple[str, str]] = set()  # operators and metrics that were warned of

    def process(self, exps: list[Experience]) -> Metrics:
        """Write what the operators leave; return their metrics and how many were written.

        Raises:
            BufferClosedError: the sink was closed, or this.
        """
        with self._turn:
            self._check()
            try:
                return without_end(self._processed, exps)
            finally:
                if self._is_closed:  # meanwhile, by somebody who left the operators to this call
                    self._close_operators()

    def is_over(self, *, timeout_s: float) -> bool:
        """Return whether nothing is written any more, once this was closed.

        Args:
            timeout_s: how long to wait for the call that is being made.
        """
        is_over = self._turn.acquire(timeout=timeout_s)
        if is_over:
            self._turn.release()
        return is_over

    def _processed(self, exps: list[Experience]) -> Metrics:
        metrics: Metrics = {"experience_pipeline/num_read": float(len(exps))}
        if self._plugin_digest:
            for exp in exps:
                exp.info["plugins"] = self._plugin_digest
        if self._input_sink is not None:
            self._input_sink.write([_without_environment(exp) for exp in exps])
        self._feedback = {}
        self._look("", exps)
        for operator in self._operators:
            self._check()
            exps, own = checked(operator, self._finished(operator.process(exps)))
            own, outcomes = without_feedback(own)
            self._feedback |= outcomes
            numbers = self._numbers(own, of=type(operator).__qualname__)
            metrics |= with_prefix("experience_pipeline", numbers)
        if self._operators:
            self._look("experience_operator", exps)
        exps, own = self._with_advantages(exps)
        if self._advantage_fn is not None:
            self._look("advantage_fn", exps)
        self._check()
        began = time.perf_counter()
        with nullcontext() if self._audit is None else self._audit.writing(exps):
            self._sink.write(exps)
        return {
            **metrics,
            **own,
            "experience_pipeline/num_written": float(len(exps)),
            "time/write_s": time.perf_counter() - began,
        }

    def _look(self, kind: str, exps: Sequence[Experience]) -> None:
        if self._audit is not None:
            self._audit.processed(kind, exps)

    def feedback(self) -> dict[str, RowValues]:
        """Return how the tasks of the last call went, by taskset, where an operator says so."""
        return self._feedback

    def close(self) -> None:
        """Write nothing that comes later, and close the operators; safe to call twice.

        A call that is being made closes them at its end.
        """
        self._is_closed = True
        if self._turn.acquire(timeout=CLOSE_S):
            try:
                self._close_operators()
            finally:
                self._turn.release()

    def _close_operators(self) -> None:
        while self._operators:
            self._finished(self._operators.pop().close())
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _check(self) -> None:
        if self._is_closed:
            raise BufferClosedError("the run that these experiences are of is over")

    def _finished(self, given: Any) -> Any:  # Any: what an operator returns, or what gives it
        """Return what an operator gave; one that awaits does so in the loop of this pipeline."""
        if not inspect.isawaitable(given):
            return given
        self._loop = self._loop or asyncio.Runner()
        return self._loop.run(_awaited(given))

    def _numbers(self, metrics: Metrics, *, of: str) -> Metrics:
        """Return the numbers among an operator's metrics; tell the others once."""
        numbers, others = numbers_in(metrics)
        for name, value in others.items():
            if (of, name) not in self._said:
                self._said.add((of, name))
                logger.warning(
                    "%s.process() gave the metric %s, which is not a number and is ignored: "
                    "%s. Return numbers, or dicts of numbers, as metrics.",
                    of, name, " ".join(f"{value!r:.80}".split()),
                )  # fmt: skip
        return numbers

    def _with_advantages(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        if self._advantage_fn is None or not exps:
            return exps, {}
        began = time.perf_counter()
        batch, own = apply_advantage(self._advantage_fn, ExperienceBatch.from_experiences(exps))
        return batch.write_back(), {**own, "time/advantage_s": time.perf_counter() - began}


def _without_environment(exp: Experience) -> Experience:
    """Return it without what its environment answered, which the samples keep once, and bounded."""
    if ENVIRONMENT not in exp.info:
        return exp
    shown = copy.copy(exp)
    shown.info = {name: value for name, value in exp.info.items() if name != ENVIRONMENT}
    return shown


async def _awaited(given: Any) -> Any:
    return await given
