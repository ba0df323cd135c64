"""The embedded rollout engine: batched sampling with any decoder of transformers, in this process.

submit() --------+--> Gate --take()--> worker thread: batches --> Decoder --> the requests' futures
load_weights() --+                     owns the model: weights change between two batches only
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from trinity.common.ports import Completion, GenerationRequest, WeightSnapshot, WeightVersion
from trinity.engines.batching import batches
from trinity.engines.decode import Decoder
from trinity.engines.gate import Gate, Waiting
from trinity.engines.loading import eos_token_ids, load_model, pick_device
from trinity.engines.request_checks import check_request
from trinity.engines.weights import copy_weights
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from transformers import PreTrainedModel

    from trinity.engines.rows import Row

__all__ = ["TransformersEngine"]

_SMALL_MODEL = 50_000_000  # parameters; below, threads wait for each other longer than they work
_CLOSE_TIMEOUT_S = 30.0


class TransformersEngine:
    """Samples with a model of transformers on a CPU or one GPU.

    Requests that wait together run as one batch; the samples of a request, and requests with the
    same prompt, share its prefill; a row that ended leaves the batch.

    Args:
        model_path: folder or Hugging Face id.
        max_model_len: most tokens of prompt and reply together.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: as stored.
        seed: of all samples.
        device: ``cpu``, ``cuda``, ``cuda:1``; None: a GPU if there is one.
        num_threads: of torch in this whole process; None: 1 for a small model on a CPU.
        max_batch_rows: most rows of one batch.
        max_batch_tokens: most tokens of one batch, padding included: bounds the cache.
        trust_remote_code: run code that comes with the model.
        gate_patience_s: how long a batch waits for a run that sends nothing.
        module: the trainer's own model, used instead of a copy; it must not change while a batch
            runs, and :meth:`load_weights` then notes the version only.

    Raises:
        ModelError: the model cannot be loaded.
    """

    def __init__(  # noqa: PLR0913 -- the options of a component
        self,
        *,
        model_path: str,
        max_model_len: int,
        dtype: str = "float32",
        seed: int = 0,
        device: str | None = None,
        num_threads: int | None = None,
        max_batch_rows: int = 256,
        max_batch_tokens: int = 131_072,
        trust_remote_code: bool = False,
        gate_patience_s: float = 1.0,
        module: PreTrainedModel | None = None,
    ) -> None:
        self._is_shared = module is not None
        self._module = module or load_model(
            model_path,
            dtype=dtype,
            device=pick_device(device),
            trust_remote_code=trust_remote_code,
        )
        _set_threads(self._module, num_threads)
        self._max_model_len = max_model_len
        self._max_batch_rows = max_batch_rows
        self._max_batch_tokens = max_batch_tokens
        self._version = WeightVersion(0)
        self._busy_s = 0.0
        self._gate = Gate(patience_s=gate_patience_s)
        self._decoder = Decoder(
            self._module,
            eos_token_ids=eos_token_ids(self._module),
            seed=seed,
            max_model_len=max_model_len,
            checkpoint=self._check_open,
        )
        self._worker = threading.Thread(target=self._work, name="rollout-engine", daemon=True)
        self._worker.start()

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""
        return self._version

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engine has spent on generating."""
        return self._busy_s

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request.

        Returns:
            gives the ``n`` completions, or a :class:`ModelError`.

        Raises:
            ModelError: the request cannot be answered, or the engine is closed.
        """
        check_request(request, max_model_len=self._max_model_len, vocab=self._decoder.vocab)
        future: Future[list[Completion]] = Future()
        self._gate.submit(Waiting(request=request, future=future))
        return future

    def run_began(self) -> None:
        """Note that one more run may send requests: a batch waits for it."""
        self._gate.run_began()

    def run_ended(self) -> None:
        """Note that a run that began sends nothing more."""
        self._gate.run_ended()

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights in place, before the next batch; returns when it is done.

        Raises:
            ModelError: the snapshot is of another model, or the engine is closed.
        """
        done: Future[None] = Future()

        def load() -> None:
            try:
                self._check_open()
                if not self._is_shared:
                    copy_weights(self._module, snapshot.tensors)
                self._version = snapshot.version
            except Exception as error:  # noqa: BLE001 -- the caller's; the worker lives on
                done.set_exception(error)
            else:
                done.set_result(None)

        self._gate.post(load)
        done.result()

    def close(self) -> None:
        """End the worker; waiting requests, and the batch being computed, fail."""
        for waiting in self._gate.close():
            if waiting.future.set_running_or_notify_cancel():
                waiting.future.set_exception(_closed())
        self._worker.join(_CLOSE_TIMEOUT_S)

    def _work(self) -> None:
        while (work := self._gate.take()) is not None:
            for job in work.jobs:
                job()
            live = [w for w in work.requests if w.future.set_running_or_notify_cancel()]
            self._gate.answered(w.request.key for w in work.requests if w.future.cancelled())
            try:
                self._answer(live)
            finally:
                self._resolve([(waiting, _closed()) for waiting in live])

    def _answer(self, taken: Sequence[Waiting]) -> None:
        """Complete the requests; a batch that fails takes only its own requests along."""
        answers: list[list[Completion]] = [[] for _ in taken]
        cut = batches(
            [waiting.request for waiting in taken],
            max_rows=self._max_batch_rows,
            max_tokens=self._max_batch_tokens,
            max_model_len=self._max_model_len,
        )
        for rows in cut:
            sources = sorted({row.source for row in rows})
            try:
                for row, completion in zip(rows, self._completed(rows), strict=True):
                    answers[row.source].append(completion)
            except Exception as error:  # noqa: BLE001 -- a batch is its requests' rollout
                self._resolve([(taken[source], _failure(error)) for source in sources])
                continue
            whole = [s for s in sources if len(answers[s]) == taken[s].request.n]
            self._resolve([(taken[source], answers[source]) for source in whole])

    def _resolve(self, outcomes: Sequence[tuple[Waiting, list[Completion] | ModelError]]) -> None:
        """Answer the requests that have no answer yet; their runs are away from then on."""
        news = [(waiting, outcome) for waiting, outcome in outcomes if not waiting.future.done()]
        self._gate.answered(waiting.request.key for waiting, _ in news)
        for waiting, outcome in news:
            if isinstance(outcome, ModelError):
                waiting.future.set_exception(outcome)
            else:
                waiting.future.set_result(outcome)

    def _completed(self, rows: Sequence[Row]) -> list[Completion]:
        # A tensor made in inference mode could not be used by the trainer of a shared module.
        mode = torch.no_grad() if self._is_shared else torch.inference_mode()
        began = time.perf_counter()
        try:
            with mode, _evaluating(self._module):
                return self._decoder.complete(rows, version=self._version)
        finally:
            self._busy_s += time.perf_counter() - began

    def _check_open(self) -> None:
        if self._gate.is_closed:
            raise _closed()


@contextmanager
def _evaluating(module: PreTrainedModel) -> Iterator[None]:
    if not module.training:
        yield
        return
    module.eval()
    try:
        yield
    finally:
        module.train()


def _set_threads(module: PreTrainedModel, num_threads: int | None) -> None:
    if num_threads is None and module.device.type == "cpu":
        is_small = module.num_parameters() < _SMALL_MODEL
        num_threads = 1 if is_small else None
    if num_threads is not None:
        torch.set_num_threads(num_threads)


def _failure(error: Exception) -> ModelError:
    if isinstance(error, ModelError):
        return error
    failure = ModelError(
        f"the rollout engine failed while generating: {type(error).__name__}: {error}. "
        f"If memory ran out, lower max_batch_tokens or model.max_model_len."
    )
    failure.__cause__ = error
    return failure


def _closed() -> ModelError:
    return ModelError("the rollout engine was closed before it answered.")
