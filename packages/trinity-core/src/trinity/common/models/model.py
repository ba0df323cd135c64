"""The model as a workflow uses it: messages in, experiences out.

workflow --chat(messages)--> ModelWrapper --GenerationRequest--> engine
   ^                            |  history: recorded ids            |
   +------- [Experience] -------+ <---------- Completion -----------+
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from trinity.common.models.calls import RunCalls, RunRequests
from trinity.common.models.chat import Chat
from trinity.common.models.chat_experiences import chains_of, experiences_of_chat
from trinity.common.models.chat_history import ChatHistory, Prompt, make_prompt
from trinity.common.models.clients import async_client_of
from trinity.common.models.exchange import Exchanges
from trinity.common.models.recorded_calls import CallRecorder
from trinity.common.models.reply import reply_parser
from trinity.common.models.run_endpoints import RunEndpoints
from trinity.common.models.settings import ModelSettings, Sampling
from trinity.common.ports import RunKey
from trinity.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from openai import AsyncOpenAI, OpenAI
    from torch import Tensor

    from trinity.common.experience import Experience
    from trinity.common.models.calls import PendingCall
    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.recorded_calls import RecordedCall
    from trinity.common.ports import Completion, Endpoint, EndpointOpener, RolloutEngine, RunSession
    from trinity.common.workflows.task import Task

__all__ = ["ModelWrapper"]


class ModelWrapper:
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
        self._adapted: dict[str, ModelWrapper] = {}
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
    def settings(self) -> ModelSettings:
        """Return how the model is asked where a call does not say it."""
        return self._settings

    @property
    def config(self) -> ModelSettings:
        """Return the settings, with the ``name`` of an auxiliary model; published."""
        return self._settings

    model_config = config  # published, too

    @property
    def generate_kwargs(self) -> dict[str, Any]:  # Any: each as OpenAI's clients take it
        """Return what an OpenAI client of this model is given to ask as the settings say."""
        return self._settings.generate_kwargs

    @property
    def enable_history(self) -> bool:
        """Return whether every call is recorded."""
        return self._settings.enable_history

    def adapter(self, name: str) -> ModelWrapper:
        """Return the model with one of several LoRA adapters, which is one agent of the run.

        A workflow may keep it for later rollouts. Agents do not continue each other's chats. Its
        experiences have the name as ``info["adapter"]`` and train that adapter.

        Args:
            name: of an entry of ``model.lora_configs``.

        Raises:
            ModelError: no entry has the name.
        """
        settings = self._settings.of_adapter(name)
        if name not in self._adapted:
            clone = self.clone_with_isolated_history()
            clone._settings, clone._adapted = settings, self._adapted
            self._adapted.setdefault(name, clone)  # another thread may have been faster
        return self._adapted[name]

    @property
    def exchanges(self) -> Exchanges:
        """Return what an API asks this run's engine with: messages in, messages out.

        Raises:
            UnknownComponentError: a configured parser of replies is not there.
        """
        parser = reply_parser(self._chat_format, self._settings)
        return Exchanges(**self._of_run, parser=parser)

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
        text = self._chat(messages, {}).render(self._chat_format)
        return len(self._chat_format.encode(text))

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

    def convert_messages_to_experience(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        temperature: float | None = None,
    ) -> Experience:
        """Return a whole conversation as one experience.

        The replies that this run's engine made come with their token ids and log-probabilities;
        all other tokens are masked. Where the chat template rewrites earlier messages, it is the
        last unbroken chain of replies; :meth:`earlier_chains` has the others.

        Args:
            messages: the conversation.
            tools: as given to :meth:`chat`.
            temperature: stands in the experience where no reply was recorded.
        """
        chat = self._chat(messages, {"tools": tools})
        *earlier, whole = experiences_of_chat(
            chat,
            history=self._history,
            chat_format=self._chat_format,
            temperature=self._settings.temperature if temperature is None else temperature,
            max_len=self._settings.max_model_len,
        )
        if earlier:
            self._run.broken.append((whole.tokens, earlier))
        for one in (whole, *earlier):
            one.info |= self._settings.adapter_info
        if self._run.has_cut_prompts:
            whole.truncate_status = "prompt_truncated"
        return whole

    async def convert_messages_to_experience_async(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        temperature: float | None = None,
    ) -> Experience:
        """Return a whole conversation as one experience; see the other method."""
        return self.convert_messages_to_experience(messages, tools, temperature)

    def earlier_chains(self, experience: Experience) -> list[Experience]:
        """Return the chains that :meth:`convert_messages_to_experience` left out of its result."""
        found = (chains for tokens, chains in self._run.broken if tokens is experience.tokens)
        return next(found, [])

    def extract_experience_from_history(
        self,
        clear_history: bool = True,  # noqa: FBT001, FBT002 -- published
        merge: Literal["exchanges", "chains"] = "exchanges",
    ) -> list[Experience]:
        """Return an experience for each reply so far, in the order of their requests.

        Args:
            clear_history: forget them.
            merge: ``chains``: one for each unbroken chain of replies instead, in which what the
                model did not say is masked.

        Raises:
            ConfigError: calls are not recorded.
        """
        if not (self.enable_history or self._settings.enable_openai_api):
            raise ConfigError(
                "the calls of this model are not recorded. "
                "Set explorer.rollout_model.enable_history: true."
            )
        calls = self.recorded_calls
        found = chains_of(calls) if merge == "chains" else [call.experience for call in calls]
        for one in self._agents if clear_history else ():
            one._recorder.clear()
        num_undelivered = sum(session.num_undelivered for session in self._sessions)
        if found and num_undelivered:
            found[-1].metrics["api/undelivered:sum"] = float(num_undelivered)
        return found

    @property
    def recorded_calls(self) -> list[RecordedCall]:
        """Return the replies so far, in the order of their requests."""
        calls = [call for one in self._agents for call in one._recorder.in_order()]
        return sorted(calls, key=lambda call: call.key)

    def endpoint(
        self, agent: str = "", *, record: bool = True, force_sampling: bool = True
    ) -> Endpoint:
        """Return where an agent of any framework finds this model, until the run ends.

        Args:
            agent: who asks, for ``info["agent"]`` of the experiences.
            record: whether the exchanges become experiences.
            force_sampling: whether the configuration's temperature, top_p and top_k win over the
                agent's own.

        Raises:
            ConfigError: ``explorer.rollout_model.enable_openai_api`` is off.
        """
        return self._endpoints.endpoint(
            self, agent=agent, record=record, force_sampling=force_sampling
        )

    def get_openai_client(self, record: bool = True) -> OpenAI:  # noqa: FBT001, FBT002 -- published
        """Return OpenAI's client of this model, with its name as ``client.model_path``.

        Args:
            record: whether the calls become experiences.

        Raises:
            ConfigError: ``explorer.rollout_model.enable_openai_api`` is off.
        """
        return self._endpoints.client(self.endpoint(record=record, force_sampling=False))

    def get_openai_async_client(self, record: bool = True) -> AsyncOpenAI:  # noqa: FBT001, FBT002 -- published
        """Return the client for those that await; take one for each event loop."""
        return async_client_of(self.endpoint(record=record, force_sampling=False))

    @property
    def num_served(self) -> int:
        """Return how many calls of this run came by its endpoint and were answered."""
        return sum(session.num_served for session in self._sessions)

    def check_served(self) -> None:
        """Say so if the last call by the endpoint got no reply from the engine.

        Raises:
            ModelError: an agent went on without its model.
        """
        for failure in (session.failure for session in self._sessions):
            if failure is not None:
                raise ModelError(f"the last call of the agent got no reply: {failure}") from failure

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
        for name, one in self._adapted.items():
            one._settings = self._settings.of_adapter(name)
        for one in self._agents:
            one._history.clear()
            one._recorder.clear()
        # Other clones were of the other run.
        self._run.endpoints[:] = [one._endpoints for one in self._agents]

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

    @property
    def _agents(self) -> list[ModelWrapper]:
        """Return the model and, unless it is one of them, its agents that were asked for."""
        return [self] if self._settings.adapter else [self, *self._adapted.values()]

    @property
    def _sessions(self) -> list[RunSession]:
        found = (one._endpoints.session for one in self._agents)
        return [session for session in found if session is not None]

    @property
    def _calls(self) -> RunCalls:
        return RunCalls(**self._of_run)

    @property
    def _of_run(self) -> dict[str, Any]:  # Any: what calls are made with
        return {
            "engine": self._engine,
            "chat_format": self._chat_format,
            "settings": self._settings,
            "run": self._run,
            "history": self._history,
            "recorder": self._recorder,
        }

    def _chat(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Chat:
        thinking = options.get("enable_thinking")
        return Chat(
            messages=tuple(dict(message) for message in messages),
            tools=tuple(options.get("tools") or ()),
            enable_thinking=self._settings.enable_thinking if thinking is None else thinking,
        )

    def _ask_chat(self, messages: Sequence[Message], options: Mapping[str, Any]) -> PendingCall:
        sampling = {k: v for k, v in options.items() if k not in {"tools", "enable_thinking"}}
        chat = self._chat(messages, options)
        prompt = make_prompt(chat, history=self._history, chat_format=self._chat_format)
        return self._ask(prompt, Sampling.of(sampling))

    def _ask_texts(
        self, prompts: str | Sequence[str], options: Mapping[str, Any]
    ) -> list[PendingCall]:
        sampling = Sampling.of(options)
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        asked = [self._calls.text_prompt(text) for text in texts]
        return [self._ask(prompt, sampling) for prompt in asked]

    def _ask(self, prompt: Prompt, sampling: Sampling) -> PendingCall:
        """Ask the engine; a prompt that is too long is cut, where it may be."""
        length, limit = len(prompt.token_ids), self._settings.prompt_limit
        is_cut = length > limit
        if is_cut:
            if not self._settings.enable_prompt_truncation:
                raise ModelError(
                    f"the prompt has {length} tokens, more than {limit}. Shorten it, raise "
                    f"model.max_prompt_tokens (and model.max_model_len), or set "
                    f"model.enable_prompt_truncation: true."
                )
            self._run.has_cut_prompts = True
            prompt = Prompt(token_ids=prompt.token_ids[-limit:], text=prompt.text)
        return self._calls.submit(prompt, sampling, is_cut=is_cut)

    def _score(self, tokens: Sequence[int], temperature: float | None) -> Future[list[float]]:
        heat = self._settings.temperature if temperature is None else temperature
        return self._engine.score([int(token) for token in tokens], heat)

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
        own = self._calls
        replies = [
            reply
            for call, completions in zip(calls, answers, strict=True)
            for reply in own.text_replies(call, completions)
        ]
        for reply in replies:
            own.offer(reply)
        self._run.heard(reply.version for reply in replies)
        if self.enable_history:
            self._recorder.add(replies)
        return [reply.experience for reply in replies]


def _give_up(calls: Sequence[PendingCall]) -> None:
    """Let the engine end what nobody waits for any more."""
    for call in calls:
        if not call.future.done():
            call.future.cancel()


def _float32(scores: Sequence[float]) -> Tensor:
    import torch

    return torch.tensor(scores, dtype=torch.float32)
