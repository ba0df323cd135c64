"""The model as a workflow uses it: messages in, experiences out.

workflow --chat(messages)--> ModelWrapper --GenerationRequest--> engine
   ^                            |  history: recorded ids            |
   +------- [Experience] -------+ <---------- Completion -----------+
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from trinity.common.models.call import PendingCall, RunRequests
from trinity.common.models.clients import ClientsOfRun, RunEndpoints
from trinity.common.models.exchange import Exchanges
from trinity.common.models.history import ChatHistory, Prompt, Turn, make_prompt
from trinity.common.models.recorder import CallRecorder, ModelCall, RecordedCall, name_of
from trinity.common.models.reply_parsers import reply_parser
from trinity.common.models.settings import ModelSettings, Sampling
from trinity.common.models.transcript import Remembered
from trinity.common.ports import Completion, RolloutEngine, RunKey
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from torch import Tensor

    from trinity.common.experience import Experience
    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.ports import EndpointOpener, Scores
    from trinity.common.workflows.task import Task

__all__ = ["ModelWrapper", "Scored"]


class Scored:
    """The part of a model wrapper that teachers are asked by."""

    _engine: RolloutEngine
    _settings: ModelSettings

    def logprobs(self, tokens: Sequence[int], temperature: float | None = None) -> Tensor:
        """Return what the model thinks of a text: one number for each token but the first.

        Args:
            tokens: ids of the model's tokenizer.
            temperature: None: as the model's settings have it.

        Returns:
            ``[len(tokens) - 1]``, float32: natural log-probabilities under the full softmax, each
            given the tokens before; those of a response begin at ``prompt_length - 1``.

        Raises:
            ModelError: the engine does not provide ``scores``, or the text is too long.
        """
        future = self._score(tokens, temperature)
        try:
            scores = future.result(self._settings.request_timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise self.no_answer() from error
        return _float32(scores)

    async def logprobs_async(
        self, tokens: Sequence[int], temperature: float | None = None
    ) -> Tensor:
        """Return what the model thinks of a text; see :meth:`logprobs`."""
        future = asyncio.wrap_future(self._score(tokens, temperature))
        try:
            return _float32(await asyncio.wait_for(future, self._settings.request_timeout_s))
        except TimeoutError as error:
            raise self.no_answer() from error

    def no_answer(self) -> ModelError:
        """Return the error of an engine that takes too long."""
        return ModelError(
            f"the rollout engine gave no answer in {self._settings.request_timeout_s:.0f} s. "
            f"Is it overloaded? Lower model.max_response_tokens, or send fewer requests at once."
        )

    def _score(self, tokens: Sequence[int], temperature: float | None) -> Future[list[float]]:
        heat = self._settings.temperature if temperature is None else temperature
        return cast("Scores", self._engine).score([int(token) for token in tokens], heat)


def _float32(scores: Sequence[float]) -> Tensor:
    import torch

    return torch.tensor(scores, dtype=torch.float32)


class ModelWrapper(ClientsOfRun, Remembered, Scored):
    """Asks an engine on behalf of one run and keeps what was said.

    Args:
        engine: what samples.
        chat_format: tokenizer and chat template of the same model.
        config: ``explorer.rollout_model``, or :class:`ModelSettings`.
        model: the section ``model``, which stands in for what ``config`` leaves None.
        key: which run this is.
        enable_history: record every call for :meth:`extract_experience_from_history`; None: as
            ``config`` says.
        endpoints: opens endpoints of this process; None: :meth:`endpoint` is refused.

    Attributes:
        beside: auxiliary models of the run by their names; its endpoints answer for them, too.
    """

    def __init__(  # noqa: PLR0913 -- what a run's model is made of
        self,
        engine: RolloutEngine,
        chat_format: ChatFormat,
        config: object,
        *,
        model: object = None,
        key: RunKey | None = None,
        enable_history: bool | None = None,
        endpoints: EndpointOpener | None = None,
    ) -> None:
        self._engine = engine
        self._chat_format = chat_format
        settings = config if isinstance(config, ModelSettings) else ModelSettings.of(config, model)
        if enable_history is not None:
            settings = replace(settings, enable_history=enable_history)
        self._base = self._settings = settings
        self._run = RunRequests(key or RunKey())
        self._history = ChatHistory()
        self._recorder = CallRecorder()
        self._endpoints = RunEndpoints(endpoints)
        self.beside: Mapping[str, ModelWrapper] = {}
        self._run.endpoints.append(self._endpoints)

    @property
    def model_path(self) -> str:
        """Return the folder or id of the model."""
        return self._settings.model_path

    @property
    def model_name(self) -> str:
        """Return the model's name: the one that it is served by, else its path."""
        settings = self._settings
        return settings.name or settings.served_model_name or settings.model_path

    @property
    def run_id(self) -> str:
        """Return which run this is: its batch, task and run, as ``3/7/0``."""
        key = self._run.key
        return f"{key.batch}/{key.task}/{key.run}"

    @property
    def model_version(self) -> int:
        """Return the version of the weights that the next call is answered with."""
        return int(self._engine.version)

    @property
    def oldest_version(self) -> int | None:
        """Return the version of the oldest weights that answered this run; None: none has."""
        return self._run.oldest

    @property
    def chat_format(self) -> ChatFormat:
        """Return the tokenizer with its chat template."""
        return self._chat_format

    @property
    def exchanges(self) -> Exchanges:
        """Return what an API asks this run's engine with: messages in, messages out.

        Raises:
            UnknownComponentError: a configured parser of replies is not there.
        """
        return Exchanges(
            chat_format=self._chat_format,
            history=self._history,
            settings=self._settings,
            parser=reply_parser(self._chat_format, self._settings),
            send=self._ask,
            record=self._record,
        )

    def chat(self, messages: Sequence[Message], **options: Any) -> list[Experience]:
        """Return the replies to a conversation; works in any thread.

        Args:
            messages: each with ``role`` and ``content``.
            **options: ``n``, ``temperature``, ``top_p``, ``top_k``, ``min_p``, ``max_tokens``,
                ``min_tokens``, ``repetition_penalty``, ``ignore_eos``, ``stop`` (one or several),
                ``stop_token_ids``, ``structure``; ``tools`` and ``enable_thinking`` for the
                chat template (Any: each option's own type; None: the default).

        Returns:
            ``n`` experiences, each of one prompt and one reply.

        Raises:
            ModelError: an option is unknown, or the engine failed.
        """
        return self._wait([self._ask_chat(messages, options)])

    async def chat_async(self, messages: Sequence[Message], **options: Any) -> list[Experience]:
        """Return the replies to a conversation; see :meth:`chat`."""
        return await self._await([self._ask_chat(messages, options)])

    def generate(self, prompts: str | Sequence[str], **options: Any) -> list[Experience]:
        """Return the continuations of plain texts, ``n`` for each, in their order.

        See :meth:`chat` for the options, and for what is raised.
        """
        return self._wait(self._ask_texts(prompts, options))

    async def generate_async(
        self, prompts: str | Sequence[str], **options: Any
    ) -> list[Experience]:
        """Return the continuations of plain texts; see :meth:`generate`."""
        return await self._await(self._ask_texts(prompts, options))

    async def get_message_token_len(self, messages: Sequence[Message]) -> int:
        """Return how many tokens the conversation is as a prompt, with what opens the reply."""
        turn = self._turn(messages, {})
        return len(self._chat_format.encode(turn.render(self._chat_format)))

    def for_run(
        self, key: RunKey, *, engine: RolloutEngine | None = None, task: Task | None = None
    ) -> ModelWrapper:
        """Return a wrapper for another run, with nothing said yet.

        Args:
            key: of the run; its requests are counted from ``key.request`` on.
            engine: another copy of the model; None: the same.
            task: as for :meth:`begin_run`.
        """
        wrapper = ModelWrapper(
            engine or self._engine,
            self._chat_format,
            self._base,
            key=key,
            endpoints=self._endpoints.opener,
        )
        wrapper.begin_run(key, task=task)
        return wrapper

    def begin_run(self, key: RunKey, *, task: Task | None = None) -> None:
        """Become the wrapper of another run: nothing is said yet, requests are counted anew.

        Args:
            key: of the run.
            task: how its ``rollout_args`` say is generated where a call does not say it.
        """
        self.close_endpoints()
        self._run.begin(key)
        self._settings = self._base if task is None else self._base.for_task(task)
        self._history.clear()
        self._recorder.clear()

    def end_run(self) -> None:
        """Let nothing more be asked: the run was left behind, and whoever still asks is to end."""
        self._run.is_over = True
        self.close_endpoints()

    def close_endpoints(self) -> None:
        """End the endpoints of the run and of its clones; the next one is another's."""
        self._run.close_endpoints()

    def clone_with_isolated_history(self) -> ModelWrapper:
        """Return a wrapper of the same run that records apart."""
        clone = self.for_run(self._run.key)
        clone._settings = self._settings
        clone.beside = self.beside
        clone._run = self._run  # the requests of both are counted together
        self._run.endpoints.append(clone._endpoints)
        return clone

    def _ask_chat(self, messages: Sequence[Message], options: Mapping[str, Any]) -> PendingCall:
        sampling = {k: v for k, v in options.items() if k not in {"tools", "enable_thinking"}}
        turn = self._turn(messages, options)
        prompt = make_prompt(turn, history=self._history, chat_format=self._chat_format)
        return self._ask(prompt, turn, Sampling.of(sampling))

    def _ask_texts(
        self, prompts: str | Sequence[str], options: Mapping[str, Any]
    ) -> list[PendingCall]:
        sampling = Sampling.of(options)
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        ids = [self._chat_format.encode(text, add_special_tokens=True) for text in texts]
        asked = [Prompt(token_ids=tuple(i), text=t) for i, t in zip(ids, texts, strict=True)]
        return [self._ask(prompt, None, sampling) for prompt in asked]

    def _ask(self, prompt: Prompt, turn: Turn | None, sampling: Sampling) -> PendingCall:
        if self._run.is_over:
            raise ModelError("the run was left behind: its time was up, or the whole was stopped.")
        limit = self._settings.prompt_limit
        is_cut = len(prompt.token_ids) > limit
        if is_cut:
            self._check_may_cut(len(prompt.token_ids))
            self._run.has_cut_prompts = True
            prompt = Prompt(token_ids=prompt.token_ids[-limit:], text=prompt.text)
        request = sampling.request(
            prompt.token_ids, key=self._run.next_key(), settings=self._settings
        )
        future = self._engine.submit(request)
        return PendingCall(prompt=prompt, turn=turn, is_cut=is_cut, request=request, future=future)

    def _check_may_cut(self, length: int) -> None:
        if not self._settings.enable_prompt_truncation:
            raise ModelError(
                f"the prompt has {length} tokens, more than {self._settings.prompt_limit}. Shorten "
                f"it, raise model.max_prompt_tokens (and model.max_model_len), or set "
                f"model.enable_prompt_truncation: true."
            )

    def _wait(self, calls: Sequence[PendingCall]) -> list[Experience]:
        limit = self._settings.request_timeout_s
        try:
            answers = [call.future.result(limit) for call in calls]
        except TimeoutError as error:
            raise self.no_answer() from error
        finally:
            _give_up(calls)
        return self._received(calls, answers)

    async def _await(self, calls: Sequence[PendingCall]) -> list[Experience]:
        answers = asyncio.gather(*(asyncio.wrap_future(call.future) for call in calls))
        try:
            done = await asyncio.wait_for(answers, self._settings.request_timeout_s)
        except TimeoutError as error:
            raise self.no_answer() from error
        finally:
            _give_up(calls)
        return self._received(calls, done)

    def _received(
        self, calls: Sequence[PendingCall], answers: Sequence[Sequence[Completion]]
    ) -> list[Experience]:
        pairs = zip(calls, answers, strict=True)
        recorded = [
            self._recorded(call, completion, name=name_of(call.request.key.request, index))
            for call, answer in pairs
            for index, completion in enumerate(answer)
        ]
        self._run.heard(reply.version for reply in recorded)
        if self.enable_history:
            self._recorder.add(recorded)
        return [reply.experience for reply in recorded]

    def _record(self, replies: Sequence[RecordedCall]) -> None:
        self._run.heard(reply.version for reply in replies)
        self._recorder.add(replies)

    def _recorded(self, call: PendingCall, completion: Completion, *, name: str) -> RecordedCall:
        text = self._chat_format.decode(completion.token_ids)
        message = {"role": "assistant", "content": text}
        conversation = call.conversation(
            completion, message=message, chat_format=self._chat_format, name=name
        )
        if conversation is not None:
            self._history.add(conversation)
        experience = call.experience(completion, text=text, name=name)
        said = ModelCall(experience=experience)
        return RecordedCall(key=call.request.key, said=said, conversation=conversation)


def _give_up(calls: Sequence[PendingCall]) -> None:
    """Let the engine end what nobody waits for any more."""
    for call in calls:
        if not call.future.done():
            call.future.cancel()
