"""Answer a request for samples: what it asks for, read from its JSON, and its protobuf answer."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from trinity.common.ports import GenerationRequest, RunKey
from trinity.errors import TrinityError

from trinity_tinker.fields import number, parsed, whole
from trinity_tinker.prompt_scores import target_logprobs, token_logprobs, top_logprobs
from trinity_tinker.refusal import Refused
from trinity_tinker.sampling_turns import SamplingTurns
from trinity_tinker.store import Request, Result
from trinity_tinker.tensors import Cells, bytes_of, cells_of_json
from trinity_tinker.training import refusal_result
from trinity_tinker.wire import message

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trinity.common.ports import Completion

    from trinity_tinker.base_model import BaseModel
    from trinity_tinker.checkpoints import Checkpoints
    from trinity_tinker.samplers import Sampler, Samplers
    from trinity_tinker.store import Store

__all__ = ["MAX_SAMPLES", "SAMPLE_FIELDS", "Sampling"]

logger = logging.getLogger("trinity.tinker")

MAX_SAMPLES = 4096  # of one request; each is named in its answer
_MAX_SCORES = 2**26  # log-probabilities in one answer, beside the tokens' own: up to 12 bytes each
SAMPLE_FIELDS: dict[str, Any] = {
    "prompt": dict,
    "sampling_params": dict,
    "num_samples": 1,
    "sampling_session_id": None,
    "seq_id": None,
    "base_model": None,
    "model_path": None,
    "prompt_logprobs": False,
    "topk_prompt_logprobs": 0,
    "topk_sample_logprobs": 0,
    "target_prompt_logprobs": None,
    "prompt_alt_tokens_k": 0,
    "prompt_logprobs_last_n": None,
    "record_stability_info": False,
}
_PARAMS = {
    "max_tokens": None,
    "seed": None,
    "stop": None,
    "temperature": 1.0,
    "top_k": -1,
    "top_p": 1.0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _SampleRequest:
    """What a request asks for, beside the samples."""

    generation: GenerationRequest
    has_prompt_logprobs: bool
    top_prompt: int
    top_sampled: int
    targets: Cells | None
    last: int  # tokens of the prompt that are scored


class Sampling:
    """Samples with base models and checkpoints; its coroutines are of one event loop.

    Args:
        store: where results are noted.
        checkpoints: where checkpoints are.
        bases: the models by their names.
        samplers: that are in memory.
    """

    def __init__(
        self,
        store: Store,
        *,
        checkpoints: Checkpoints,
        bases: Mapping[str, BaseModel],
        samplers: Samplers,
    ) -> None:
        self._store = store
        self.checkpoints = checkpoints
        self._bases = bases
        self._samplers = samplers
        self._turns = SamplingTurns()
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tinker-scoring")

    def close(self) -> None:
        """End after what is being scored."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._samplers.close()

    def forget(self, folder: Path) -> None:
        """Let go of a checkpoint whose files are gone."""
        self._samplers.forget(folder)

    async def run(self, request: Request) -> Result:
        """Do what is asked for, and note how it ended."""
        try:
            result = await self._sample(request)
        except (Refused, TrinityError) as error:
            result = refusal_result(str(error))
        except Exception as error:  # the boundary to a client: logged, and told
            logger.exception("sample %d of %s failed", request.seq, request.scope)
            result = refusal_result(f"the server failed: {error!r}", category="server")
        try:
            self._store.finish(request, result, keeps_body=False)
        except (sqlite3.DataError, OverflowError) as error:  # SQLite takes no more than 10**9 bytes
            result = refusal_result(
                f"the answer has {len(result.body)} bytes, which the journal cannot keep: {error}. "
                f"Ask for fewer samples, shorter ones or fewer log-probabilities."
            )
            self._store.finish(request, result, keeps_body=False)
        return result

    async def _sample(self, request: Request) -> Result:
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._threads)
        body = parsed(request.body or b"", **SAMPLE_FIELDS)
        sampler: Sampler = await in_thread(self._sampler, request, body)
        try:
            asked = _read(body, base=sampler.base, request=request)
            async with self._turns.of(sampler, rows=asked.generation.n):
                completions = await asyncio.wrap_future(sampler.submit(asked.generation))
            answer: bytes = await in_thread(_answer, sampler, asked, completions)
        finally:
            self._samplers.release(sampler)
        summary = {
            "samples": len(completions),
            "prompt": len(asked.generation.prompt_token_ids),
            "tokens": sum(len(one.token_ids) for one in completions),
        }
        return Result(form="proto", body=answer, summary=summary)

    def _sampler(self, request: Request, body: dict[str, Any]) -> Sampler:
        """Return what a sampling session, or a request without one, samples from."""
        base, path = body["base_model"], body["model_path"]
        if body["sampling_session_id"] is not None:
            session = self._store.owned(
                "samplings", body["sampling_session_id"], owner=request.owner
            )
            base, path = session["base"], session["path"]
        if path is None:
            return self._samplers.of_base(self._base(base))
        row = self.checkpoints.find(path, owner=request.owner)
        while True:
            try:
                return self._samplers.of_checkpoint(
                    self.checkpoints.folder_of(row),
                    self._base(row["base"]),
                    made=row["made"],
                )
            except Refused:
                before, row = row, self.checkpoints.find(path, owner=request.owner)
                if row["made"] == before["made"]:  # else its files made way for newer ones
                    raise

    def publish(self, path: str, *, owner: str) -> None:
        """Let those who sample weights that change go on with the newest."""
        row = self.checkpoints.find(path, owner=owner)
        self._samplers.publish(self.checkpoints.folder_of(row), made=row["made"])

    def _base(self, name: str) -> BaseModel:
        if name not in self._bases:
            raise Refused(f"the base model {name!r} is not served here.")
        return self._bases[name]


def _read(body: dict[str, Any], *, base: BaseModel, request: Request) -> _SampleRequest:
    if body["record_stability_info"]:
        raise Refused("record_stability_info is not implemented here.")
    if body["prompt_alt_tokens_k"]:
        raise Refused("prompt_alt_tokens_k is not implemented here.")
    prompt = _prompt(body["prompt"])
    last = body["prompt_logprobs_last_n"]
    is_fitting = isinstance(last, int) and 1 <= last < len(prompt)
    if last is not None and not (body["prompt_logprobs"] and is_fitting):
        raise Refused(
            f"prompt_logprobs_last_n is {last}; it is from 1 to the tokens of the prompt but one, "
            f"and needs prompt_logprobs."
        )
    targets = None
    if body["target_prompt_logprobs"] is not None:
        targets = cells_of_json(body["target_prompt_logprobs"], name="target_prompt_logprobs")
        if len(targets.shape) != 2 or targets.shape[0] != len(prompt) - 1:
            raise Refused("target_prompt_logprobs has a row for each token of the prompt but one.")
        if targets.values_C.size and targets.values_C.max() >= base.vocab:
            raise Refused(f"target_prompt_logprobs has a token above {base.vocab - 1}.")
    generation = _generation(body, prompt, base=base, request=request)
    top_prompt = whole(body, "topk_prompt_logprobs", least=0, most=base.vocab)
    top_sampled = whole(body, "topk_sample_logprobs", least=0, most=base.vocab)
    num_scores = 0 if targets is None else targets.values_C.size
    num_scores += top_prompt * len(prompt)
    num_scores += top_sampled * generation.n * generation.max_new_tokens
    if num_scores > _MAX_SCORES:
        raise Refused(
            f"topk_prompt_logprobs, topk_sample_logprobs and target_prompt_logprobs ask for "
            f"{num_scores} log-probabilities; an answer has up to {_MAX_SCORES} of them."
        )
    return _SampleRequest(
        generation=generation,
        has_prompt_logprobs=bool(body["prompt_logprobs"]),
        top_prompt=top_prompt,
        top_sampled=top_sampled,
        targets=targets,
        last=len(prompt) - 1 if last is None else last,
    )


def _prompt(given: dict[str, Any]) -> tuple[int, ...]:
    tokens: list[int] = []
    chunks = given.get("chunks", ())
    if not isinstance(chunks, list) or not all(isinstance(chunk, dict) for chunk in chunks):
        raise Refused("the chunks of the prompt are no list of objects.")
    for chunk in chunks:
        kind = chunk.get("type", "encoded_text")
        if kind != "encoded_text":
            raise Refused(f"the prompt has a chunk of {kind}; only text is known here.")
        found = chunk.get("tokens")
        if not isinstance(found, list) or not all(isinstance(token, int) for token in found):
            raise Refused("a chunk of the prompt has no list of token ids.")
        tokens += found
    return tuple(tokens)


def _generation(
    body: dict[str, Any], prompt: tuple[int, ...], *, base: BaseModel, request: Request
) -> GenerationRequest:
    given = parsed(json.dumps(body["sampling_params"]).encode(), **_PARAMS)
    stop = given["stop"]
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(one, str | int) for one in stops):
        raise Refused(f"stop is {stop!r:.80}; it is a text, or a list of texts or token ids.")
    seed = given["seed"]
    key = RunKey(batch=request.scope, request=request.seq)
    longest = base.max_length - len(prompt)
    return GenerationRequest(
        prompt_token_ids=prompt,
        key=key if seed is None else RunKey(batch=f"seed/{seed}"),
        n=whole(body, "num_samples", least=1, most=MAX_SAMPLES),
        temperature=number(given, "temperature", least=0.0),
        top_p=number(given, "top_p", least=0.0),
        top_k=whole(given, "top_k", least=-1),
        max_new_tokens=longest
        if given["max_tokens"] is None
        else whole(given, "max_tokens", least=0),
        ignore_eos=stop is not None and not stops,
        stop=tuple(one for one in stops if isinstance(one, str)),
        stop_token_ids=tuple(one for one in stops if not isinstance(one, str)),
    )


def _answer(sampler: Sampler, asked: _SampleRequest, completions: list[Completion]) -> bytes:
    made = message("SampleResponse")
    for completion in completions:
        sequence = made.sequences.add(stop_reason=int(completion.finish_reason == "length"))
        sequence.tokens = bytes_of(completion.token_ids, "<i4")
        sequence.logprobs = bytes_of(completion.logprobs, "<f4")
        if asked.top_sampled:
            top = _top_sampled(sampler, asked, completion)
            sequence.topk_sampled_logprobs.CopyFrom(top)
    _add_prompt_scores(made, sampler, asked)
    return bytes(made.SerializeToString())


def _top_sampled(sampler: Sampler, asked: _SampleRequest, completion: Completion) -> Any:
    text = (*asked.generation.prompt_token_ids, *completion.token_ids)
    last = len(completion.token_ids)
    temperature = asked.generation.temperature or 1.0
    scores = sampler.scores_of(text, last=last, temperature=temperature, num_top=asked.top_sampled)
    return top_logprobs(scores, length=last)


def _add_prompt_scores(made: Any, sampler: Sampler, asked: _SampleRequest) -> None:
    """Add what is asked for of the prompt's own tokens."""
    if not (asked.has_prompt_logprobs or asked.top_prompt or asked.targets is not None):
        return
    prompt, is_whole = asked.generation.prompt_token_ids, asked.targets is not None
    if len(prompt) < 2:  # its only token has nothing before it
        if asked.has_prompt_logprobs:
            made.prompt_logprobs = np.full(len(prompt), np.nan, dtype="<f4").tobytes()
        return
    last = len(prompt) - 1 if is_whole else asked.last
    scores = sampler.scores_of(prompt, last=last, num_top=asked.top_prompt, targets=asked.targets)
    if asked.has_prompt_logprobs:
        made.prompt_logprobs = token_logprobs(scores.last(asked.last), length=len(prompt)).tobytes()
    if asked.top_prompt:
        top = top_logprobs(scores.last(asked.last), length=len(prompt))
        made.topk_prompt_logprobs.CopyFrom(top)
    if asked.targets is not None:
        made.target_prompt_logprobs.CopyFrom(target_logprobs(scores, asked.targets))
