"""Sample with a Tinker service."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity.common.generation.own_tokenizer import OwnTokenizer
from trinity.common.ports import Completion, RolloutEngine, WeightVersion
from trinity.engines.rows import completed_stop
from trinity.errors import ModelError

from trinity_tinker.client.connection import (
    connected,
    end_session,
    finished,
    missing_sdk,
    naming,
)
from trinity_tinker.client.start import start_of
from trinity_tinker.client.weights import path_in

if TYPE_CHECKING:
    from trinity.common.ports import GenerationRequest, RunKey, WeightSnapshot

__all__ = ["TinkerEngine"]

_NEUTRAL = {"min_p": 0.0, "min_new_tokens": 0, "repetition_penalty": 1.0}
_THREADS = 32  # requests that wait for the service at a time


class TinkerEngine(RolloutEngine):
    """Asks a service for completions; weights are named to it, never sent.

    Args:
        model_path: the base model, as the service knows it, or a checkpoint of the trainer.
        seed: of all samples; None: 0.
        base_url: of the service; None: TINKER_BASE_URL.

    Raises:
        ConfigError: there is no service, or it does not serve the model.
    """

    takes_stop_strings = True

    def __init__(
        self, model_path: str, *, seed: int | None = None, base_url: str | None = None
    ) -> None:
        self.version = WeightVersion(0)
        self._seed = seed or 0
        self._service = connected(base_url)
        start = start_of(base_url, model_path)
        self._tokenizer = OwnTokenizer(model_path, trust_remote_code=False)
        with naming("create_sampling_client"):
            self._client = finished(self._service.create_sampling_client(**start.sampled))
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tinker-sampling")
        self._lock = threading.Lock()  # of client and version, which change together

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Ask the service in a thread.

        Raises:
            ModelError: a setting of the request that the service does not have.
        """
        for name, neutral in _NEUTRAL.items():
            if getattr(request, name) != neutral:
                raise ModelError(
                    f"{name} is {getattr(request, name)}; the rollout engine tinker has no such "
                    f"setting. Leave it out."
                )
        if request.stop:
            self._tokenizer.get(field="stop")
        _stop_of(request)
        with self._lock:
            client, version = self._client, self.version
        return self._threads.submit(self._sample, request, client, version)

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Sample the weights whose path the snapshot has; requests under way end with theirs.

        Raises:
            ModelError: it has none, or the service does not have them.
        """
        with naming("create_sampling_client"):
            client = finished(self._service.create_sampling_client(model_path=path_in(snapshot)))
        with self._lock:
            self._client, self.version = client, snapshot.version

    def close(self) -> None:
        """End the session; requests that wait are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        end_session(self._service)

    @staticmethod
    def preflight(**arguments: Any) -> list[str]:
        """Return that the SDK is missing, if it is."""
        del arguments
        return missing_sdk()

    def _sample(
        self,
        request: GenerationRequest,
        client: Any,  # Any: a SamplingClient
        version: WeightVersion,
    ) -> list[Completion]:
        import tinker

        params = tinker.SamplingParams(
            max_tokens=request.max_new_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=_seed_of(request.drawn_by, self._seed),
            stop=_stop_of(request),
        )
        prompt = tinker.ModelInput.from_ints(list(request.prompt_token_ids))
        with naming("sample"):
            response = finished(client.sample(prompt, request.n, params))
        completions = [_completion(one, version) for one in response.sequences]
        if not request.stop:
            return completions
        decode = self._tokenizer.text
        matches = [
            completed_stop(one.token_ids, request.stop, decode=decode) for one in completions
        ]
        return [
            replace(one, stop_reason=stop) for one, stop in zip(completions, matches, strict=True)
        ]


def _stop_of(request: GenerationRequest) -> list[str] | list[int] | None:
    """Return what ends replies, as the protocol says it: ``[]`` nothing, None the end token.

    Raises:
        ModelError: the protocol cannot say it.
    """
    if request.stop and request.stop_token_ids:
        raise ModelError(
            f"stop is {request.stop} and stop_token_ids {request.stop_token_ids}; a Tinker service "
            f"takes texts or ids. Leave one of them out."
        )
    given = list(request.stop) or list(request.stop_token_ids)
    if given and request.ignore_eos:
        raise ModelError(
            f"ignore_eos is set, and replies end by {given}; with a Tinker service the end token "
            f"ends such replies too. Leave ignore_eos out."
        )
    return given or ([] if request.ignore_eos else None)


def _completion(sampled: Any, version: WeightVersion) -> Completion:  # Any: a SampledSequence
    if sampled.logprobs is None:
        raise ModelError("the Tinker service gave no log-probabilities of its samples.")
    return Completion(
        token_ids=tuple(map(int, sampled.tokens)),
        logprobs=tuple(map(float, sampled.logprobs)),
        finish_reason=str(sampled.stop_reason),
        weight_version=version,
    )


def _seed_of(key: RunKey, seed: int) -> int:
    """Return a seed of 31 bits that is another for each request, and the same in each run."""
    return int.from_bytes(hashlib.sha256(f"{seed} {key}".encode()).digest()[:4]) >> 1
