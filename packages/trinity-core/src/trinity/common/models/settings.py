"""How a model is asked: the resolved settings, and what one call changes of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from trinity.common.ports import GenerationRequest, RunKey, Structure
from trinity.errors import ModelError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.workflows.task import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSettings:
    """What a model wrapper reads of ``explorer.rollout_model`` and ``model``."""

    model_path: str = ""
    name: str | None = None  # of an auxiliary model; None: it has none
    served_model_name: str | None = None  # None: the model_path
    max_model_len: int = 4096
    max_prompt_tokens: int | None = None  # None: what the context holds
    max_response_tokens: int | None = None  # None: what the context still holds
    min_response_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    enable_thinking: bool | None = None  # None: as the chat template has it
    enable_prompt_truncation: bool = True
    enable_history: bool = False
    enable_openai_api: bool = False
    keep_reasoning: bool = False
    tool_call_parser: str | None = None  # None: as the tokenizer or its chat template says
    reasoning_parser: str | None = None  # None: likewise
    request_timeout_s: float = 3600.0
    is_trained: bool = True  # not: an auxiliary model's, whose weights stay
    adapters: tuple[str, ...] = ()  # several, one for each agent, of which a request names one
    adapter: str = ""  # that requests name

    @classmethod
    def of(cls, *sections: object) -> ModelSettings:
        """Return the settings; of each, the first section's that has it and does not leave it None.

        >>> from types import SimpleNamespace
        >>> ModelSettings.of(SimpleNamespace(top_k=None), SimpleNamespace(top_k=5)).top_k
        5
        """
        values: dict[str, Any] = {}  # Any: a setting of any type
        for field in fields(cls):
            given = (getattr(section, field.name, None) for section in sections)
            value = next((value for value in given if value is not None), None)
            if value is not None:
                values[field.name] = value
        return cls(**values)

    def for_task(self, task: Task) -> ModelSettings:
        """Return the settings with what the task says about generating."""
        own: dict[str, Any] = {  # Any: a setting of any type
            "temperature": task.rollout_args.temperature,
            "top_p": task.rollout_args.top_p,
            "top_k": task.rollout_args.top_k,
            "max_response_tokens": task.rollout_args.max_tokens,
            "enable_thinking": task.format_args.enable_thinking,
        }
        return replace(self, **{name: value for name, value in own.items() if value is not None})

    @property
    def generate_kwargs(self) -> dict[str, Any]:  # Any: each as OpenAI's clients take it
        """Return what an OpenAI client is given to ask as these settings say.

        >>> ModelSettings(temperature=0.7, max_response_tokens=64).generate_kwargs
        {'temperature': 0.7, 'top_p': 1.0, 'max_tokens': 64}
        """
        given: dict[str, Any] = {"temperature": self.temperature, "top_p": self.top_p}
        if self.max_response_tokens is not None:
            given["max_tokens"] = self.max_response_tokens
        if self.enable_thinking is not None:
            switch = {"enable_thinking": self.enable_thinking}
            given["extra_body"] = {"chat_template_kwargs": switch}
        return given

    @property
    def adapter_info(self) -> dict[str, Any]:  # Any: as info has it
        """Return what the ``info`` of experiences says of the adapter that sampled them."""
        return {"adapter": self.adapter} if self.adapter else {}

    def of_adapter(self, name: str) -> ModelSettings:
        """Return the settings that ask one of several adapters; ModelError: none has the name."""
        if name not in self.adapters:
            known = unknown_name("adapter in model.lora_configs", name, self.adapters)
            hint = "" if self.adapters else " With fewer than two entries, ask the model itself."
            raise ModelError(known + hint)
        return replace(self, name=name, adapter=name)

    def check_adapter(self) -> None:
        """Refuse a request that does not say which of several adapters is asked.

        Raises:
            ModelError: the message lists them.
        """
        if self.adapters and not self.adapter:
            raise ModelError(
                f"model.lora_configs has several adapters: {', '.join(self.adapters)}. Say which "
                f"agent speaks: self.model.adapter(NAME), or its name as the model of an endpoint."
            )

    @property
    def prompt_limit(self) -> int:
        """Return the most tokens of a prompt: at least one more must fit into the context."""
        most = self.max_model_len - 1
        return most if self.max_prompt_tokens is None else min(most, self.max_prompt_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """What a call may set; None: as the model's settings have it."""

    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None  # token -> what is added to its logit
    seed: int | None = None
    stop: str | Sequence[str] | None = None  # texts that a reply ends with
    stop_token_ids: Sequence[int] | None = None
    structure: Structure | None = None
    logprobs: int | None = None  # every reply has them: accepted, and changes nothing

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Sampling:
        """Return the sampling of a call's keyword arguments.

        Raises:
            ModelError: an argument is unknown.
        """
        known = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in known:
                raise ModelError(unknown_name("generation argument", name, known))
        return cls(**arguments)

    def request(
        self, prompt: tuple[int, ...], *, key: RunKey, settings: ModelSettings
    ) -> GenerationRequest:
        """Return the request to the engine."""
        room = settings.max_model_len - len(prompt)
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return GenerationRequest(
            prompt_token_ids=prompt,
            key=key,
            n=_first(self.n, 1),
            temperature=float(_first(self.temperature, settings.temperature)),
            top_p=float(_first(self.top_p, settings.top_p)),
            top_k=_first(self.top_k, settings.top_k),
            min_p=float(_first(self.min_p, 0.0)),
            max_new_tokens=_first(self.max_tokens, settings.max_response_tokens, room),
            min_new_tokens=_first(self.min_tokens, settings.min_response_tokens),
            repetition_penalty=float(_first(self.repetition_penalty, settings.repetition_penalty)),
            ignore_eos=_first(self.ignore_eos, settings.ignore_eos),
            presence_penalty=float(_first(self.presence_penalty, 0.0)),
            frequency_penalty=float(_first(self.frequency_penalty, 0.0)),
            logit_bias=tuple(sorted((self.logit_bias or {}).items())),
            seed=str(_first(self.seed, "")),
            stop=stop,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            structure=self.structure,
            adapter=settings.adapter,
        )


def _first(*values: Any) -> Any:  # Any: the type of the setting
    return next(value for value in values if value is not None)
