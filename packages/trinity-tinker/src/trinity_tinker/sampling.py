"""Do what requests for samples ask for, each with an answer in protobuf."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from trinity.errors import TrinityError

from trinity_tinker.fields import parsed
from trinity_tinker.prompt_scores import target_logprobs, token_logprobs, top_logprobs
from trinity_tinker.refusal import Refused
from trinity_tinker.sample_request import SAMPLE_FIELDS, SampleRequest, read_sample_request
from trinity_tinker.sampling_turns import SamplingTurns
from trinity_tinker.store import Request, Result
from trinity_tinker.tensors import bytes_of
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

__all__ = ["Sampling"]

logger = logging.getLogger("trinity.tinker")


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
        body = parsed(self._store.body_of(request.id), **SAMPLE_FIELDS)
        sampler: Sampler = await in_thread(self._sampler, request, body)
        try:
            asked = read_sample_request(body, base=sampler.base, request=request)
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


def _answer(sampler: Sampler, asked: SampleRequest, completions: list[Completion]) -> bytes:
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


def _top_sampled(sampler: Sampler, asked: SampleRequest, completion: Completion) -> Any:
    text = (*asked.generation.prompt_token_ids, *completion.token_ids)
    last = len(completion.token_ids)
    temperature = asked.generation.temperature or 1.0
    scores = sampler.scores_of(text, last=last, temperature=temperature, num_top=asked.top_sampled)
    return top_logprobs(scores, length=last)


def _add_prompt_scores(made: Any, sampler: Sampler, asked: SampleRequest) -> None:
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
