"""A storage, engine, trainer, monitor and sync method that say by words what they can do."""

from __future__ import annotations

import csv
import hashlib
import math
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trinity.common.ports import (
    Completion,
    Flushes,
    Monitor,
    TakesSamples,
    WeightSnapshot,
    WeightVersion,
)
from trinity.errors import BufferClosedError, CheckpointError, ModelError, TrinityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor
    from trinity.common.config import Config, ExperienceBufferConfig
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import GenerationRequest, RolloutEngine, RunKey


class WordsStorage:
    """Gives the oldest experiences first; thread-safe, and never makes a writer wait.

    ``waiting`` lets a checkpoint hold what nobody has read: a resumed run gets it by ``write``.

    Args:
        config: the section of the buffer.
    """

    def __init__(self, config: ExperienceBufferConfig) -> None:
        self._waiting: list[Experience] = []
        self._is_closed = False
        self._changed = threading.Condition()
        self.counts = 0  # of writes; not what the ability of this name is

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store the experiences.

        Raises:
            BufferClosedError: the buffer was closed.
        """
        with self._changed:
            if self._is_closed:
                raise BufferClosedError("the buffer is closed: nothing more can be written")
            self._waiting.extend(experiences)
            self.counts += 1
            self._changed.notify_all()

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return ``count`` experiences, fewer only when the writers closed.

        Raises:
            TimeoutError: fewer than ``count`` were there in time; none of them is lost.
            StopIteration: the writers closed and nothing is left.
        """
        until = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._drop_older(min_model_version)
                if len(self._waiting) >= count or self._is_closed:
                    return self._taken(count)
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    raise TimeoutError(
                        f"{len(self._waiting)} experiences are there, {count} are wanted"
                    )

    def available(self) -> int:
        """Return how many experiences can be read without waiting."""
        with self._changed:
            return len(self._waiting)

    def waiting(self) -> list[Experience]:
        """Return what was written and not read, in order, without taking it."""
        with self._changed:
            return list(self._waiting)

    def close(self) -> None:
        """Say that nothing more comes; what is stored can still be read."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Store what was read last and not used in its old place."""
        with self._changed:
            self._waiting[:0] = experiences

    def _drop_older(self, min_model_version: int) -> None:
        if min_model_version > 0:
            self._waiting = [
                one
                for one in self._waiting
                if (one.info.get("model_version") or 0) >= min_model_version
            ]

    def _taken(self, count: int) -> list[Experience]:
        if not self._waiting:
            raise StopIteration
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken


class WordsEngine:
    """Answers with what the model samples, and with the log-probability of each token.

    Args:
        model_path: a folder, or an id of the Hugging Face hub.
        dtype: of the weights.
        seed: of the sampling: a request draws the same for the same seed, key and weights.
        max_model_len: prompt and response together; None: what the model can hold.
    """

    def __init__(
        self,
        *,
        model_path: str,
        dtype: str = "float32",
        seed: int = 0,
        max_model_len: int | None = None,
    ) -> None:
        weights = getattr(torch, dtype)
        self._model = AutoModelForCausalLM.from_pretrained(model_path, dtype=weights).eval()
        self._max_len = max_model_len or self._model.config.max_position_embeddings
        ends = self._model.generation_config.eos_token_id
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or [])
        self._seed = seed
        self._version = WeightVersion(0)
        self._weights_in_use = threading.Lock()
        self._is_closed = False
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._busy_s = 0.0

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engine has spent on generating."""
        return self._busy_s

    @property
    def version(self) -> WeightVersion:
        """Return the version of the weights that the next request is answered with."""
        return self._version

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Queue a request; the future gives ``n`` completions or a ``ModelError``."""
        try:
            return self._worker.submit(self._answer, request)
        except RuntimeError as error:  # the worker takes nothing more
            raise ModelError("the engine is closed") from error

    def run_began(self, key: RunKey) -> None:
        """Take note of nothing: requests are answered in the order in which they come."""

    def run_ended(self, key: RunKey) -> None:
        """Take note of nothing."""

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Replace the weights in place, between two requests."""
        own = dict(self._model.named_parameters())
        if own.keys() != snapshot.tensors.keys():
            odd = sorted(own.keys() ^ snapshot.tensors.keys())
            raise ModelError(f"weights that only one side has: {', '.join(odd[:3])}")
        with self._weights_in_use, torch.no_grad():
            for name, tensor in snapshot.tensors.items():
                own[name].copy_(tensor)
            self._version = snapshot.version

    def close(self) -> None:
        """Free the model; waiting requests fail with ``ModelError``."""
        self._is_closed = True
        self._worker.shutdown(wait=True)

    def _answer(self, request: GenerationRequest) -> list[Completion]:
        self._check(request)
        began = time.monotonic()
        with self._weights_in_use, torch.inference_mode():
            replies = [self._sampled(request, number) for number in range(request.n)]
        self._busy_s += time.monotonic() - began
        return replies

    def _check(self, request: GenerationRequest) -> None:
        """Refuse what this engine cannot do; it never does something else instead."""
        if self._is_closed:
            raise ModelError("the engine was closed before the request's turn came")
        if (request.top_p, request.repetition_penalty) != (1.0, 1.0) or request.top_k > 0:
            raise ModelError("this engine samples without top_p, top_k and repetition_penalty")
        if len(request.prompt_token_ids) >= self._max_len:
            raise ModelError(f"the prompt leaves no token of {self._max_len} for the response")

    def _sampled(self, request: GenerationRequest, number: int) -> Completion:
        chance = self._generator(request, number)
        tokens: list[int] = []
        logprobs: list[float] = []
        inputs, cache, reason = torch.tensor([request.prompt_token_ids]), None, "length"
        limit = min(request.max_new_tokens, self._max_len - len(request.prompt_token_ids))
        while len(tokens) < limit:
            output = self._model(input_ids=inputs, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            token, logprob = self._drawn(output.logits[0, -1].float(), request, chance, len(tokens))
            tokens.append(token)
            logprobs.append(logprob)
            if token in self._ends and not request.ignore_eos:
                reason = "stop"
                break
            inputs = torch.tensor([[token]])
        return Completion(
            token_ids=tuple(tokens),
            logprobs=tuple(logprobs),
            finish_reason=reason,
            weight_version=self._version,
        )

    def _drawn(
        self, logits_V: Tensor, request: GenerationRequest, chance: torch.Generator, place: int
    ) -> tuple[int, float]:
        """Return a token and its log-probability under the full softmax."""
        logprob_V = (logits_V / (request.temperature or 1.0)).log_softmax(-1)
        allowed_V = logprob_V.clone()
        if place < request.min_new_tokens:
            allowed_V[list(self._ends)] = -torch.inf
        if request.temperature == 0:
            token = int(allowed_V.argmax())
        else:
            token = int(torch.multinomial(allowed_V.softmax(-1), 1, generator=chance))
        return token, float(logprob_V[token])

    def _generator(self, request: GenerationRequest, number: int) -> torch.Generator:
        text = f"{self._seed}/{request.key}/{number}/{self._version}"
        digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest))


class WordsTrainer:
    """Raises the log-probability of each token by its advantage, one row after the other.

    The advantages are those that the algorithm's advantage function wrote before the experiences
    were stored; a row without any is weighed by its reward.

    Args:
        config: the resolved configuration, of which ``algorithm.optimizer.lr`` and
            ``trainer.grad_clip`` are read.
        model_path: the model to start from.
        seed: of whatever the model's file does not hold.
    """

    def __init__(self, *, config: Config, model_path: str, seed: int) -> None:
        torch.manual_seed(seed)
        self._model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
        self._tokenizer = AutoTokenizer.from_pretrained(model_path)
        lr = config.algorithm.optimizer.lr
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=lr)
        self._max_norm = config.trainer.grad_clip or torch.inf
        self._version = 0

    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        """Return the metrics of one optimizer step; the weights are one version newer then.

        Raises:
            TrinityError: the gradient is not finite; the weights are as before.
        """
        self._optimizer.zero_grad(set_to_none=True)
        num_tokens = sum(int(_mask(one).sum()) for one in experiences)
        total = 0.0
        for experience in experiences:  # gradients add up: the batch may be cut anywhere
            loss = self._loss(experience) / max(1, num_tokens)
            loss.backward()
            total += loss.item()
        norm = float(torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._max_norm))
        if not math.isfinite(norm):
            raise TrinityError(f"step {step}: the norm of the gradient is {norm}")
        self._optimizer.step()
        self._version += 1
        return {"actor/loss": total, "actor/grad_norm": norm}

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        """Return the weights by their names in the model."""
        named = self._model.named_parameters()
        tensors = {name: one.detach().clone() if copy else one.detach() for name, one in named}
        return WeightSnapshot(version=WeightVersion(self._version), tensors=tensors)

    def save(self, directory: Path) -> None:
        """Write what ``load`` needs, and the model as transformers reads it."""
        self._model.save_pretrained(directory / "huggingface")
        self._tokenizer.save_pretrained(directory / "huggingface")
        state = {"optimizer": self._optimizer.state_dict(), "version": self._version}
        torch.save(state, directory / "trainer.pt")

    def load(self, directory: Path) -> None:
        """Go on from what ``save`` wrote.

        Raises:
            CheckpointError: it cannot be read.
        """
        try:
            state = torch.load(directory / "trainer.pt", weights_only=True)
            saved = AutoModelForCausalLM.from_pretrained(directory / "huggingface")
        except (OSError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"{directory} cannot be read: {error}") from error
        self._model.load_state_dict(saved.state_dict())
        self._optimizer.load_state_dict(state["optimizer"])
        self._version = state["version"]

    def close(self) -> None:
        """Free the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def trained_batch(self) -> None:
        """Return nothing: the batch is not kept."""

    def _loss(self, experience: Experience) -> Tensor:
        logits_LV = self._model(input_ids=experience.tokens[None]).logits[0]
        start = experience.prompt_length - 1  # the last of the prompt gives the first response
        scores_RV = logits_LV[start:-1].float() / experience.temperature
        chosen_R = experience.tokens[experience.prompt_length :]
        logprob_R = scores_RV.log_softmax(-1).gather(-1, chosen_R[:, None])[:, 0]
        return -(_advantages(experience) * logprob_R * _mask(experience)).sum()


def _mask(experience: Experience) -> Tensor:
    if experience.action_mask is not None:
        return experience.action_mask
    return torch.ones(experience.response_length, dtype=torch.bool)


def _advantages(experience: Experience) -> Tensor:
    if experience.advantages is not None:
        return experience.advantages
    return torch.full((experience.response_length,), experience.reward or 0.0)


class WordsMonitor(Monitor, Flushes, TakesSamples):
    """Appends a row ``step, name, value`` for each metric to ``<role>.csv``.

    Args:
        directory: of the run's metrics.
        role: whose metrics these are: explorer, trainer or synchronizer.
    """

    def __init__(self, *, directory: Path, role: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / f"{role}.csv").open("a", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write the metrics of one step."""
        self._rows.writerows((step, name, value) for name, value in metrics.items())

    def log_samples(self, samples, *, step: int) -> None:
        """Write how many there are."""
        self._rows.writerow((step, "samples", len(samples)))

    def flush(self) -> None:
        """Hand to the operating system what was logged: asked for before each checkpoint."""
        self._file.flush()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()


class WordsSync:
    """Gives each engine a copy of its own, so that the trainer may go on at once.

    Args:
        engines: all of them.
    """

    def __init__(self, engines: Sequence[RolloutEngine]) -> None:
        self._engines = list(engines)

    def sync(self, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        """Bring the weights of ``snapshot()`` to all engines and return their version."""
        weights = snapshot()
        for engine in self._engines:
            engine.load_weights(_copy(weights))
        return weights.version


def _copy(weights: WeightSnapshot) -> WeightSnapshot:
    tensors = {name: tensor.clone() for name, tensor in weights.tensors.items()}
    return type(weights)(version=weights.version, tensors=tensors)
