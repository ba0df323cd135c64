"""The rollout engine ``external``: asks an OpenAI-compatible API for texts."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

from trinity.common.models.clients import api_async_client
from trinity.common.ports import Completion, RolloutEngine, WeightVersion
from trinity.errors import ConfigError, ModelError

from trinity_lab.external.reach import problems_of
from trinity_lab.external.text_tokens import END, NO_LIMIT, chat_of, tokens_of
from trinity_lab.external.wire import api_messages, reply_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from trinity.common.config.model import ExternalModelConfig
    from trinity.common.ports import GenerationRequest, WeightSnapshot

__all__ = ["ExternalEngine"]

_MAX_RETRIES = 5  # of the client, with growing pauses: 408, 409, 429, 5xx and lost connections
_AT_ONCE = 64  # requests
_SHOWN = 1000  # characters of what a server says, such as a page of HTML
#: what OpenAI's API does not have, and servers such as vLLM's take beside it
_EXTRA = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_REFUSED: dict[str, Any] = {  # Any: a setting of any type
    "ignore_eos": False,
    "min_new_tokens": 0,
    "stop_token_ids": (),
}


class ExternalEngine(RolloutEngine):
    """Asks a model behind an API; it is evaluated, never trained.

    Prompts are chats as JSON, tokens are bytes (``text_tokens``). Log-probabilities are 0.

    Args:
        external_model_config: where the API is, and the model's name there.
        request_timeout_s: seconds that a request may take.

    Raises:
        ConfigError: the environment does not say where the API is, or has no key.
    """

    takes_stop_strings = True

    def __init__(
        self,
        external_model_config: ExternalModelConfig,
        *,
        request_timeout_s: float = 3600.0,
    ) -> None:
        if problems := self.preflight(external_model_config=external_model_config):
            raise ConfigError(" ".join(problems))
        api = external_model_config
        self.version = WeightVersion(0)
        self._name, self._address = api.model_name or "", api.base_url_env
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="external-api", daemon=True
        )
        self._thread.start()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._client = api_async_client(
            os.environ[api.base_url_env],
            api_key=os.environ[api.api_key_env],
            model=self._name,
            timeout=request_timeout_s,
            max_retries=_MAX_RETRIES,
        )

    @staticmethod
    def preflight(**arguments: Any) -> list[str]:
        """Return what keeps the API from being asked."""
        return problems_of(arguments["external_model_config"])

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Ask the API ``n`` times.

        Raises:
            ModelError: a setting of the request that such an API does not have.
        """
        for name, neutral in _REFUSED.items():
            if getattr(request, name) != neutral:
                raise ModelError(
                    f"{name} is {getattr(request, name)}; a model behind an external API has no "
                    f"such setting. Leave it out."
                )
        arguments = self._arguments(request)
        return asyncio.run_coroutine_threadsafe(self._asked(arguments, n=request.n), self._loop)

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Refuse: the weights are not ours.

        Raises:
            ModelError: always.
        """
        raise ModelError(f"{self._name!r} is behind an external API; it takes no weights.")

    def close(self) -> None:
        """End the connections; requests under way are cancelled. Safe to call twice."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _arguments(self, request: GenerationRequest) -> dict[str, Any]:
        chat = chat_of(request.prompt_token_ids)
        extra = {name: getattr(request, name) for name in _EXTRA}
        extra = {name: value for name, value in extra.items() if value != _EXTRA[name]}
        if chat.get("enable_thinking") is not None:
            extra["chat_template_kwargs"] = {"enable_thinking": chat["enable_thinking"]}
        found: dict[str, Any] = {
            "model": self._name,
            "messages": api_messages(chat["messages"]),
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop": list(request.stop) or None,
            "tools": chat.get("tools") or None,
            "max_tokens": request.max_new_tokens if request.max_new_tokens < NO_LIMIT else None,
            "extra_body": extra or None,
        }
        return {name: value for name, value in found.items() if value is not None}

    async def _asked(self, arguments: dict[str, Any], *, n: int) -> list[Completion]:
        return list(await asyncio.gather(*(self._reply(arguments) for _ in range(n))))

    async def _reply(self, arguments: dict[str, Any]) -> Completion:
        from openai import APIConnectionError, OpenAIError

        create = self._client.chat.completions.with_raw_response.create
        try:
            async with self._slots:
                body = (await create(**arguments)).text
        except OpenAIError as error:
            cause = f" {error.__cause__}" if isinstance(error, APIConnectionError) else ""
            raise self._failed(f"{error}{cause}") from error
        try:
            text, is_cut = reply_of(body)
        except ValueError as error:
            raise self._failed(body) from error
        token_ids = tokens_of(text) + (() if is_cut else (END,))
        return Completion(
            token_ids=token_ids,
            logprobs=(0.0,) * len(token_ids),
            finish_reason="length" if is_cut else "stop",
            weight_version=self.version,
        )

    def _failed(self, said: str) -> ModelError:
        what = f"the API of {self._address} gave no reply of {self._name!r}"
        return ModelError(f"{what}: {said[:_SHOWN]}{'...' if len(said) > _SHOWN else ''}")

    async def _ended(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()
