"""The embedded rollout engine: batched sampling with any decoder of transformers, in this process.

submit() --------+--> barrier --take()--> worker thread: RequestLoop --> the requests' futures
load_weights() --+                     owns the model: weights change while no row is continued
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch

from trinity.common.generation import PendingReply, check_request
from trinity.common.generation.own_tokenizer import OwnTokenizer
from trinity.common.generation.requests import fail
from trinity.common.generation.structure import Structures
from trinity.common.ports import RolloutEngine
from trinity.engines.adapted_weights import AdaptedWeights
from trinity.engines.batch import Batch
from trinity.engines.cpu_kernels import CpuKernels
from trinity.engines.forward import Forwards
from trinity.engines.lockstep import PATIENCE_S, LockstepBarrier, QueuedRequest, Work
from trinity.engines.model import end_tokens, load_model, pick_device, set_threads, twin_of
from trinity.engines.request_queue import RequestLoop, RequestQueue, closed
from trinity.engines.rows import StopConditions
from trinity.engines.scoring import Scoring, check_scored
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from transformers import PreTrainedModel

    from trinity.common.ports import (
        Completion,
        GenerationRequest,
        InFlight,
        RunKey,
        WeightSnapshot,
        WeightVersion,
    )
    from trinity.common.ports.trainer import WeightDigest
    from trinity.engines.forward import RowAdapters

_CLOSE_TIMEOUT_S = 30.0


class TransformersEngine(RolloutEngine):
    """Samples with a model of transformers on a CPU or one GPU.

    A continuous batch: requests join it between two steps, a row that ended leaves at once. The
    samples of a request, and requests with one prompt that join together, share its prefill.

    Args:
        model_path: folder or Hugging Face id.
        max_model_len: most tokens of prompt and reply together.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: as stored.
        seed: of all samples.
        device: ``cpu``, ``cuda``, ``cuda:1``; None: a GPU if there is one.
        num_threads: of torch in this whole process; None: 1 for a small model on a CPU.
        max_batch_rows: most rows that are continued at a time.
        max_batch_tokens: most tokens of these, each as long as the longest can become: bounds the
            cache.
        trust_remote_code: run code that comes with the model.
        gate_patience_s: how long a batch waits for a run that sends nothing.
        in_lockstep: let the first requests of runs wait for each other, so that the shapes of
            batches, and with them every rounding, are a function of the step; False: a request
            joins at once.
        cpu_kernels: compute in ways that are faster on a CPU, equal to float tolerance.
        module: the trainer's own model, whose tensors are used instead of copies; they must not
            change while a batch runs, and :meth:`load_weights` then notes the version only.
        adapters: that are in ``module``; each request names its own.
        names: of adapters, which a derived engine puts into the model.

    Raises:
        ModelError: the model cannot be loaded, or keeps more than keys and values.
    """

    takes_stop_strings = True
    takes_structure = True
    takes_adapters = True
    takes_stream = True
    takes_penalties = True

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
        gate_patience_s: float = PATIENCE_S,
        in_lockstep: bool = True,
        cpu_kernels: bool = True,
        module: PreTrainedModel | None = None,
        adapters: RowAdapters | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self._is_shared = module is not None
        load = partial(load_model, model_path, dtype=dtype, trust_remote_code=trust_remote_code)
        self._module = load(device=pick_device(device)) if module is None else twin_of(module)
        self._weights = AdaptedWeights(
            self._module, read_again=lambda: load(device=self._module.device)
        )
        if names:
            adapters = self._put_adapters(names)
        set_threads(self._module, num_threads)
        self._max_model_len = max_model_len
        self._gate = LockstepBarrier(patience_s=gate_patience_s, is_free=not in_lockstep)
        kernels = CpuKernels(self._module) if cpu_kernels else None
        self._forwards = Forwards(
            self._module, max_model_len=max_model_len, kernels=kernels, adapters=adapters
        )
        eos_V = end_tokens(self._module, model_path)
        self._tokenizer = OwnTokenizer(model_path, trust_remote_code=trust_remote_code)
        self._structures = Structures(eos_V, tokenizer=self._tokenizer)
        endings = StopConditions(eos_V, tokenizer=self._tokenizer, structures=self._structures)
        self._answering = RequestLoop(
            self._gate,
            backlog=RequestQueue(
                max_rows=max_batch_rows, max_tokens=max_batch_tokens, max_model_len=max_model_len
            ),
            new_batch=lambda version: Batch(
                self._forwards, eos_V=eos_V, endings=endings, seed=seed, version=version
            ),
            computing=self._computing,
        )
        self._scoring = Scoring()
        self._worker = threading.Thread(target=self._work, name="rollout-engine", daemon=True)
        self._worker.start()

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""
        return self._answering.version

    @property
    def busy_s(self) -> float:
        return self._answering.busy_s

    @property
    def num_open(self) -> int:
        return self._gate.num_waiting + self._answering.num_open

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        check_request(
            request,
            max_model_len=self._max_model_len,
            vocab=self._forwards.vocab,
            adapters=self._forwards.adapters,
        )
        if request.stop:
            self._tokenizer.get(field="stop")
        future: PendingReply[list[Completion]] = PendingReply(on_cancel=self._gate.cancelled)
        compiling = None
        if request.structure is not None:
            compiling = self._structures.compiled(request.structure, reply=future)
        self._gate.submit(QueuedRequest(request=request, future=future, compiling=compiling))
        return future

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        ids = tuple(token_ids)
        check_scored(ids, max_model_len=self._max_model_len, vocab=self._forwards.vocab)
        future = self._scoring.add(ids, temperature=temperature)
        self._gate.post(self._score_waiting)
        return future

    def weight_digest(self) -> WeightDigest | None:
        """Return the digest of its own weights; those that it shares are the trainer's."""
        return None if self._is_shared else self._weights.digest()

    def run_began(self, key: RunKey) -> None:
        self._gate.run_began(key)

    def run_ended(self, key: RunKey) -> None:
        self._gate.run_ended(key)

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights in place; returns when it is done.

        What is being answered is answered to its end first; what was asked for later, and what had
        not begun, waits for the new weights.

        Raises:
            ModelError: the snapshot is of another model, or the engine is closed.
        """
        self._load(snapshot, is_urgent=False)

    def swap_weights(self, snapshot: WeightSnapshot, *, in_flight: InFlight) -> None:
        """Replace the weights in place before the next step; returns when it is done.

        The texts of the replies under way are prefilled with the new weights, prompt and tokens.

        A module that is the trainer's takes them as :meth:`load_weights` does.

        Raises:
            ModelError: the snapshot is of another model, or the engine is closed; replies go on
                with the weights there are.
        """
        is_urgent = in_flight != "finish" and not self._is_shared
        self._load(snapshot, is_urgent=is_urgent, begin_anew=in_flight == "abort")

    def _load(self, snapshot: WeightSnapshot, *, is_urgent: bool, begin_anew: bool = False) -> None:
        done: Future[None] = Future()

        def load() -> None:
            try:
                if self._gate.is_closed:
                    raise closed()
                if not self._is_shared:
                    self._weights.load(snapshot.tensors)
                self._answering.version = snapshot.version
                self._answering.begins_anew |= begin_anew
            except Exception as error:  # noqa: BLE001 -- the caller's; the worker lives on
                done.set_exception(error)
            else:
                done.set_result(None)

        self._gate.post(load, is_urgent=is_urgent)
        done.result()

    def close(self) -> None:
        self._refuse_waiting()
        self._worker.join(_CLOSE_TIMEOUT_S)

    def _work(self) -> None:
        try:
            while (work := self._next_work()) is not None:
                for job in work.jobs:
                    job()
                self._answering.take(work.requests)
                if self._answering.has_waiting and not work.jobs:
                    self._answering.run_batch()
        finally:
            self._refuse_waiting()
            self._scoring.fail(closed())
            self._answering.fail_all(closed())

    def _put_adapters(self, names: Sequence[str]) -> RowAdapters:
        raise ModelError(f"this engine has no adapters {', '.join(names)}. Leave out names.")

    @contextmanager
    def _computing(self) -> Iterator[None]:
        # A tensor made in inference mode could not be used by the trainer of a shared module.
        without_gradients = torch.no_grad() if self._is_shared else torch.inference_mode()
        with without_gradients, self._forwards.in_use():
            yield

    def _score_waiting(self) -> None:
        if self._gate.is_closed:
            self._scoring.fail(closed())
        else:
            self._scoring.run(self._module)

    def _refuse_waiting(self) -> None:
        for waiting in self._gate.close():
            fail(waiting.future, closed())

    def _next_work(self) -> Work | None:
        is_held = self._gate.has_jobs or self._gate.is_closed
        if self._answering.has_waiting and not is_held:
            return Work()
        return self._gate.take()
