"""vLLM itself, as one thread steps it: requests go in, weights change between two steps."""

from __future__ import annotations

from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trinity.common.ports import WeightVersion
from trinity.errors import ModelError

from trinity_engine_vllm.asked import asleep, closed, failure, half_loaded
from trinity_engine_vllm.requests import completions, parameters
from trinity_engine_vllm.starting import imported_vllm
from trinity_engine_vllm.structure import Held, structures_of
from trinity_engine_vllm.tensor_parallel import (
    ParallelLoader,
    call_workers,
    end_workers,
    executor_of,
    has_lost_a_worker,
    spreads,
)
from trinity_engine_vllm.weights import Loader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.generation.structure import Structures
    from trinity.common.ports import GenerationRequest, InFlight, WeightSnapshot

    from trinity_engine_vllm.asked import Asked
    from trinity_engine_vllm.logprobs_mode import Mode

__all__ = ["Stepping"]

_SMALL_MODEL = 50_000_000  # parameters; below, threads wait for each other longer than they work


@dataclass(kw_only=True, slots=True)
class _Given:
    """What vLLM was given, and what its samples had said when weights came."""

    asked: Asked
    version: WeightVersion  # that it began with
    held: Held | None  # None: it has no structure
    swaps: list[tuple[WeightVersion, dict[int, int]]] = field(default_factory=list)

    def spans(self, sample: int) -> list[tuple[int, int]]:
        """Return ``(first token, version)`` of each stretch of a sample."""
        spans = [(0, int(self.version))]
        for version, said in self.swaps:
            if sample in said:
                if spans[-1][0] == said[sample]:
                    spans.pop()  # nothing was said with that one
                spans.append((said[sample], int(version)))
        return spans


class Stepping:
    """One engine of vLLM in this process; made, used and ended by one thread.

    Args:
        arguments: of ``vllm.LLM``.
        is_cpu: it is the build for CPUs.
        num_threads: of torch, on a CPU; None: 1 for a small model, and in each of several workers.
        seed: of all samples.
        max_model_len: bounds the replies.
        mode: which log-probabilities vLLM tells.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        *,
        is_cpu: bool,
        num_threads: int | None,
        seed: int,
        max_model_len: int,
        mode: Mode,
    ) -> None:
        vllm = imported_vllm()
        from vllm.sampling_params import RequestOutputKind

        self._make_parameters = vllm.SamplingParams
        self._final_only = RequestOutputKind.FINAL_ONLY
        self._engine: Any = vllm.LLM(**arguments).llm_engine
        self.vocab = int(self._engine.vllm_config.model_config.get_vocab_size())
        self._spreads = spreads(arguments)
        make_loader = ParallelLoader if self._spreads else Loader
        self._loader = make_loader(self._engine, is_cpu=is_cpu)
        self._seed = seed
        self._max_model_len = max_model_len
        self._mode = mode
        self._open: dict[str, _Given] = {}  # that vLLM was given
        self._num_given = 0
        self.version = WeightVersion(0)  # of the weights
        self._sleeping: set[str] = set()  # tags of the memory that is free
        if is_cpu:
            self._prepare_cpu(num_threads)

    @cached_property
    def structures(self) -> Structures:
        """Return what compiles the structures of requests."""
        return structures_of(self._engine)

    @property
    def is_whole(self) -> bool:
        """Return whether all weights are of one version."""
        return self._loader.is_whole

    @property
    def num_open(self) -> int:
        """Return how many requests vLLM was given and did not answer."""
        return len(self._open)

    def check_serves(self) -> None:
        """Check that requests can be answered.

        Raises:
            ModelError: it sleeps, or holds a part of new weights.
        """
        if self._sleeping:
            raise asleep()
        if not self._loader.is_whole:
            raise half_loaded()

    def sleep(self, level: int) -> list[Asked]:
        """Free the GPU's memory: level 1 keeps the weights in CPU memory, 2 drops them."""
        if not self._sleeping:
            self._sleeping = {"weights", "kv_cache"}
            self._loader.is_whole &= level < 2
            self._engine.sleep(level)
        return []

    def wake_up(self, tags: Sequence[str] | None) -> list[Asked]:
        """Take the memory of these tags back, of all if there are none."""
        wanted = self._sleeping & set(tags or self._sleeping)
        if wanted:
            self._engine.wake_up(sorted(wanted))
            self._sleeping -= wanted
        return []

    def give(self, waiting: Asked) -> None:
        """Give vLLM a request, or tell who waits why it does not take it."""
        try:
            self.check_serves()
        except ModelError as error:
            _tell(waiting, error)
            return
        self._num_given += 1
        name = str(self._num_given)
        held: Held | None = None
        try:
            params = self._parameters(waiting.request)
            held = self._held(waiting, params)
            made = self._make_parameters(**params, output_kind=self._final_only)
            self._engine.add_request(name, {"prompt_token_ids": list(waiting.prompt)}, made)
        except Exception as error:  # noqa: BLE001 -- of this request; the engine lives on
            if held is not None:
                held.end()
            _tell(waiting, failure(error, "take the request"))
            return
        self._open[name] = _Given(asked=waiting, version=self.version, held=held)

    def drop_cancelled(self) -> None:
        """Let vLLM forget what nobody waits for."""
        gone = [name for name, given in self._open.items() if given.asked.future.done()]
        self._engine.abort_request(gone)
        for name in gone:
            self._taken(name)

    def step(self) -> None:
        """Make a step, and answer the requests that ended with it."""
        if not self._open:
            return
        for output in self._engine.step():
            if output.finished:
                self._answer(output)

    def swap(self, snapshot: WeightSnapshot, *, in_flight: InFlight) -> list[Asked]:
        """Replace the weights; return the requests that are to be given again.

        With ``keep``, vLLM computes all texts, prompts and replies, anew; with ``abort`` it forgets
        the requests.

        Raises:
            ModelError: the weights are of another model, or only a part of them was loaded.
        """
        again: list[Asked] = []
        texts = [name for name, given in self._open.items() if given.asked.request is None]
        if in_flight == "abort":
            texts = list(self._open)
        try:
            self._loader.load(snapshot.tensors)
        except Exception:
            if not self._loader.is_whole:
                self.fail_open(half_loaded())
            raise
        self.version = snapshot.version
        if texts:
            self._engine.abort_request(texts)
            again = [self._taken(name).asked for name in texts]
        if self._open:
            self._note_swap()
        return again

    def is_broken_by(self, error: Exception) -> bool:
        """Return whether vLLM computes nothing any more: a worker process is gone.

        One that is there and did not answer in vLLM's time is ended, with all others: whatever it
        would do when it goes on fits nothing that they do then.
        """
        if not self._spreads:
            return False
        is_unresponsive = isinstance(error, TimeoutError)
        if is_unresponsive:
            end_workers(self._engine)
        return is_unresponsive or has_lost_a_worker(self._engine)

    def fail_open(self, error: ModelError) -> None:
        """Answer all that is open with the error."""
        failed = list(self._open)
        with suppress(Exception):  # it failed a moment ago
            self._engine.abort_request(failed)
        for name in failed:
            _tell(self._taken(name).asked, error)

    def end(self) -> Any:  # Any: vLLM's
        """Fail what is open, end worker processes, and return vLLM's engine to be shut down."""
        self.fail_open(closed())
        if self._spreads:  # alone: with all of it, other engines of this process lose their groups
            executor_of(self._engine).shutdown()
        return self._engine

    def _parameters(self, request: GenerationRequest | None) -> dict[str, Any]:
        if request is None:
            return {"max_tokens": 1, "prompt_logprobs": 0, "detokenize": False}
        return parameters(
            request, seed=self._seed, version=self.version, max_model_len=self._max_model_len
        )

    def _held(self, asked: Asked, params: dict[str, Any]) -> Held | None:
        """Return what holds a request to its structure, and let vLLM be told of it."""
        if asked.request is None or asked.compiled is None:
            return None
        held = Held(
            request=asked.request,
            compiled=asked.compiled,
            structures=self.structures,
            mode=self._mode,
            seed=params["seed"],
        )
        params["extra_args"] = held.begin()
        return held

    def _taken(self, name: str) -> _Given:
        """Return what vLLM has no more, and forget it."""
        given = self._open.pop(name)
        if given.held is not None:
            given.held.end()
        return given

    def _note_swap(self) -> None:
        said: dict[str, dict[int, int]] = {name: {} for name in self._open}
        for state in self._engine.output_processor.request_states.values():
            num = state.detokenizer.num_output_tokens()
            said[state.external_req_id][state.request_index] = num
        for name, given in self._open.items():
            given.swaps.append((self.version, said[name]))

    def _answer(self, output: Any) -> None:  # Any: vLLM's
        given = self._taken(output.request_id)
        waiting = given.asked
        answer: Any
        try:
            if waiting.request is None:
                pairs = zip(waiting.prompt[1:], output.prompt_logprobs[1:], strict=True)
                answer = [logprobs[token].logprob for token, logprobs in pairs]
            else:
                answer = completions(
                    output, n=waiting.request.n, spans=given.spans, held=given.held
                )
        except Exception as error:  # noqa: BLE001 -- of this request; the others live on
            answer = failure(error, "generate")
        _tell(waiting, answer)

    def _prepare_cpu(self, num_threads: int | None) -> None:
        if not self._spreads:
            self._set_threads(num_threads)
            return
        try:
            call_workers(self._engine, "trinity_set_threads", num_threads or 1)
            call_workers(self._engine, "trinity_unname_segments")
        except TimeoutError as error:
            raise failure(error, "start", is_broken=self.is_broken_by(error)) from error

    def _set_threads(self, num_threads: int | None) -> None:
        import torch

        (num_weights,) = self._engine.apply_model(
            lambda model: sum(weight.numel() for weight in model.parameters())
        )
        num = num_threads or (1 if num_weights < _SMALL_MODEL else None)
        if num is not None:
            torch.set_num_threads(num)


def _tell(waiting: Asked, answer: Any) -> None:  # Any: completions, scores or an error
    with suppress(InvalidStateError):  # it was given up a moment ago
        if isinstance(answer, ModelError):
            waiting.future.set_exception(answer)
        else:
            waiting.future.set_result(answer)
