"""``model``: the model that is trained, where its files are, and how it generates by default."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from trinity.common.config.base import StrictModel, core, not_yet, other, section
from trinity.common.config.trainer import CRITIC

_ID = re.compile(r"([A-Za-z0-9_][\w.-]{0,95}/)?[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)


def is_hub_id(path: str) -> bool:
    """Return whether a path that does not exist can be an id of the Hugging Face hub.

    >>> is_hub_id("Qwen/Qwen3-0.6B"), is_hub_id("models/"), is_hub_id("a--b")
    (True, False, False)
    """
    is_named = _ID.fullmatch(path) is not None and not re.search(r"--|\.\.|\.git$", path)
    return is_named and not any(part[-1] in "-." for part in path.split("/"))


def model_file(model_path: str, name: str) -> Path | None:
    """Return a file of a model, None where it is neither in the folder nor in the cache."""
    if not model_path:
        return None
    if os.path.isdir(model_path):  # False for what is no path; Path.is_dir raises
        file = Path(model_path) / name
        return file if file.is_file() else None
    if not is_hub_id(model_path):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model_path, name)
    return Path(found) if isinstance(found, str) else None


_ADAPTERS = "engines that run adapters"


class LoRAConfig(StrictModel):
    """One entry of ``model.lora_configs``: a low-rank adapter."""

    name: str | None = core(None, "name of the adapter")
    path: str | None = core(
        None, "folder of an adapter to continue from; the reference model has none"
    )
    base_model_name: str | None = other(
        None, "base model of the adapter; default: model_path", used_by=_ADAPTERS
    )
    lora_rank: int = core(32, "rank of the adapter", ge=1)
    lora_alpha: int = core(32, "scale of the adapter: lora_alpha / lora_rank")
    lora_dtype: str = other(
        "auto",
        "number format of the adapter in engines; the trainer uses float32",
        used_by=_ADAPTERS,
    )
    target_modules: str = core(
        "all-linear", "layers with an adapter: names separated by commas, or a pattern"
    )
    exclude_modules: str | None = core(None, "layers without an adapter")


class TinkerConfig(StrictModel):
    """``model.tinker``: train and sample with the Tinker service."""

    enable: bool = core(False, "train and generate with the Tinker service")
    rank: int = core(16, "rank of the adapter", switch="enable", ge=1)
    seed: int | None = core(None, "seed of the service", switch="enable")
    train_mlp: bool = core(True, "train the MLP layers", switch="enable")
    train_attn: bool = core(True, "train the attention layers", switch="enable")
    train_unembed: bool = core(True, "train the output layer", switch="enable")
    base_url: str | None = core(None, "address of the service", switch="enable")
    server_loss_fn: str | None = core(None, "loss the service computes", switch="enable")


class ExternalModelConfig(StrictModel):
    """A model behind an OpenAI-compatible API: the evaluated one, or an auxiliary one."""

    enable: bool = core(False, "send the requests to an external API, not to an engine")
    base_url_env: str = core(
        "OPENAI_BASE_URL", "environment variable that holds the address", switch="enable"
    )
    api_key_env: str = core(
        "OPENAI_API_KEY", "environment variable that holds the key", switch="enable"
    )
    model_name: str | None = core(
        None, "the model's name at the API; default: model_path", switch="enable"
    )


class ModelConfig(StrictModel):
    """``model``: the model that is trained, and how it generates by default."""

    model_path: str = core("", "folder or Hugging Face id of the model")
    trust_remote_code: bool = core(False, "run code that comes with the model")
    critic_model_path: str = other(
        "",
        "folder or id of the critic's initial model; default: model_path",
        used_by=CRITIC,
    )
    custom_chat_template: str | None = core(None, "chat template (Jinja) that replaces the model's")
    chat_template_path: str | None = core(
        None, "file with a chat template; overrides custom_chat_template"
    )
    temperature: float = core(1.0, "sampling temperature", ge=0)
    top_p: float = core(1.0, "top-p (nucleus) sampling", gt=0, le=1)
    top_k: int = core(-1, "top-k sampling; -1: all tokens", ge=-1)
    logprobs: int = not_yet(0, "log-probabilities of alternatives per token", ge=0)
    max_model_len: int | None = core(
        None, "maximum tokens of prompt and response; default: the model's limit", ge=1
    )
    max_prompt_tokens: int | None = core(
        None, "maximum tokens of a prompt; default: half of max_model_len", ge=1
    )
    max_response_tokens: int | None = core(
        None, "maximum tokens of a response; default: half of max_model_len", ge=1
    )
    min_response_tokens: int = core(0, "minimum tokens of a response", ge=0)
    enable_prompt_truncation: bool = core(
        True, "truncate prompts that are too long (never trained on) instead of failing the rollout"
    )
    repetition_penalty: float = core(1.0, "above 1: repeated tokens become less likely", gt=0)
    enable_thinking: bool | None = core(None, "thinking mode of the chat template")
    lora_configs: list[LoRAConfig] | None = core(
        None,
        "train LoRA adapters instead of all weights (package peft): one, or one for each agent",
    )
    fully_sharded_loras: bool = other(False, "shard LoRA adapters", used_by=_ADAPTERS)
    max_cpu_loras: int | None = other(None, "LoRA adapters in CPU memory", used_by=_ADAPTERS)
    rope_scaling: dict[str, Any] | None = not_yet(None, "other scaling of the rotary embedding")
    rope_theta: float | None = not_yet(None, "other base of the rotary embedding")
    tinker: TinkerConfig = section(TinkerConfig, "the Tinker service")
    external_model: ExternalModelConfig = section(
        ExternalModelConfig, "evaluate a model behind an external API (mode bench)"
    )

    @property
    def adapters(self) -> tuple[str, ...]:
        """Return the names of several adapters, one for each agent; (): there is one at most."""
        several = self.lora_configs or []
        return tuple(one.name or "" for one in several) if len(several) > 1 else ()
