"""``explorer.rollout_model``: the engine that generates, and what its constructor gets."""

from __future__ import annotations

import ast
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from trinity.common.config.base import (
    ENGINES,
    GROUPS,
    Lowercase,
    StrictModel,
    core,
    machine,
    not_yet,
    other,
    section,
)
from trinity.common.config.model import ExternalModelConfig
from trinity.extend.component import split_target
from trinity.extend.kind import parameters_of

if TYPE_CHECKING:
    from trinity.common.config.model import ModelConfig
    from trinity.extend import Component


class InferenceModelConfig(StrictModel):
    """An engine that generates: of the trained model, or of an auxiliary one."""

    model_path: str | None = core(None, "folder or id of the model; default: model.model_path")
    name: str | None = core(None, "name of an auxiliary model")
    trust_remote_code: bool = core(False, "run code that comes with the model")
    engine_type: str | None = machine(
        None,
        "the engine; default: an engine for GPUs if there are GPUs, else the embedded one",
    )
    engine_num: int = machine(1, "number of engines, each with a copy of the model", ge=1)
    cpu_kernels: bool = core(
        True, "use faster CPU kernels; false: transformers' own, for debugging"
    )
    tensor_parallel_size: int = machine(
        1, "GPUs per engine (tensor parallelism); without GPUs, processes per engine", ge=1
    )
    data_parallel_size: int = other(1, "replicas within one engine", used_by=ENGINES, ge=1)
    pipeline_parallel_size: int = other(1, "pipeline stages of one engine", used_by=ENGINES, ge=1)
    nnodes: int = other(1, "machines per engine", used_by=ENGINES, ge=1)
    enable_expert_parallel: bool = other(False, "spread experts over GPUs", used_by=ENGINES)
    extra_engine_args: dict[str, Any] = other(
        {}, "further arguments of the engine's constructor", used_by=ENGINES
    )
    use_v1: bool = other(True, "second generation of the engine", used_by=ENGINES)
    enforce_eager: bool = other(False, "disable CUDA graphs", used_by=ENGINES)
    enable_prefix_caching: bool = other(True, "cache shared prefixes", used_by=ENGINES)
    enable_chunked_prefill: bool = other(True, "split long prefills", used_by=ENGINES)
    gpu_memory_utilization: float = other(
        0.9, "fraction of GPU memory for the engine", used_by=ENGINES, gt=0, le=1
    )
    enable_sleep_mode: bool = core(
        False, "engines use the trainer's GPUs and sleep in train steps, as with mode colocate"
    )
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Lowercase] | None = machine(
        None, "number format of the weights; default: trainer.precision"
    )
    seed: int | None = core(None, "seed of sampling; default: the run's seed")
    temperature: float | None = core(None, "sampling temperature; default: model's", ge=0)
    top_p: float | None = core(None, "top-p (nucleus) sampling; default: model's", gt=0, le=1)
    top_k: int | None = core(None, "top-k sampling; default: model's", ge=-1)
    logprobs: int | None = not_yet(None, "alternatives per token; default: model's", accepted=(0,))
    max_model_len: int | None = core(
        None, "maximum tokens of prompt and response; default: model's", ge=1
    )
    max_prompt_tokens: int | None = core(None, "maximum tokens of a prompt; default: model's", ge=1)
    max_response_tokens: int | None = core(
        None, "maximum tokens of a response; default: model's", ge=1
    )
    min_response_tokens: int | None = core(
        None, "minimum tokens of a response; default: model's", ge=0
    )
    enable_prompt_truncation: bool | None = core(
        None, "truncate prompts that are too long; default: model's"
    )
    repetition_penalty: float | None = core(None, "default: model's", gt=0)
    ignore_eos: bool = core(False, "continue after the end token (for benchmarks)")
    enable_multimodal: bool = not_yet(False, "read images and videos")
    chat_template: str | None = not_yet(None, "chat template (Jinja); default: model's")
    enable_thinking: bool | None = core(None, "thinking switch; default: model's")
    enable_history: bool = core(False, "record every model call of a workflow as an experience")
    enable_openai_api: bool = core(
        False, "serve the model to workflows and agents by HTTP (OpenAI's API)"
    )
    enable_log_requests: bool = core(
        False,
        "log a line for each HTTP reply; find them with trinity log --run",
        switch="enable_openai_api",
    )
    served_model_name: str | None = core(
        None,
        "further model name for HTTP clients, beside model_path; default: none",
        switch="enable_openai_api",
    )
    base_port: int | None = core(
        None,
        "port of the first engine's HTTP endpoint; default: a free one",
        switch="enable_openai_api",
        ge=1,
        le=65535,
    )
    api_key: str = core(
        "EMPTY",
        "further key of the HTTP endpoint, for callers on this machine. Their calls belong to no "
        "rollout and are not recorded. EMPTY: none",
        switch="enable_openai_api",
    )
    enable_auto_tool_choice: bool = core(
        False,
        "accepted and ignored: tool calls are always parsed if a request has tools",
        switch="enable_openai_api",
    )
    tool_call_parser: str | None = core(
        None,
        "the reply_parser for tool calls; default: chosen by the tokenizer or its chat template",
    )
    reasoning_parser: str | None = core(None, "the reply_parser for reasoning; default: likewise")
    keep_reasoning: bool = core(
        False,
        "continue by recorded token ids if a client or chat template drops the reasoning of "
        "earlier replies",
    )
    external_model_config: ExternalModelConfig = section(
        ExternalModelConfig, "an auxiliary model behind an external API"
    )
    enable_return_routed_experts: bool = not_yet(
        False, "return the experts that a mixture-of-experts model chose"
    )
    weight_sync_buffer_size: int = other(
        1024, "bucket size of a weight sync, in MiB", used_by=GROUPS, ge=1
    )


_OF_MODEL = ("model_path", "max_model_len", "trust_remote_code")


def engine_arguments(
    parameters: frozenset[str] | None, *, rollout: InferenceModelConfig, model: ModelConfig
) -> dict[str, Any]:
    """Return the arguments of an engine, those of ``extra_engine_args`` among them.

    Args:
        parameters: of its constructor; None: any.
        rollout: its section; ``extra_engine_args`` win over the section's fields.
        model: the section of the model that it runs.
    """
    own = {name: getattr(rollout, name) for name in type(rollout).model_fields}
    own |= {name: own[name] or getattr(model, name) for name in _OF_MODEL}
    for name in type(model).model_fields:  # temperature, top_p, ...: where the section has none
        if name in own and own[name] is None:
            own[name] = getattr(model, name)
    if parameters is None:
        named = {name: own[name] for name in (*_OF_MODEL, "dtype", "seed", "cpu_kernels")}
        return named | rollout.extra_engine_args
    own |= rollout.extra_engine_args
    return {name: value for name, value in own.items() if name in parameters}


def engine_parameters(component: Component) -> frozenset[str] | None:
    """Return the parameters that an engine's constructor names; None: it takes any.

    They are read in the source where there is one, as importing an engine takes seconds.
    """
    if component.held is None:
        found = _parameters_in_source(component.spec.target)
        if found is not None:
            return None if "**" in found else found
    return parameters_of(component.load())


@lru_cache(maxsize=32)
def _parameters_in_source(target: str) -> frozenset[str] | None:
    """Return the parameters of the class's own ``__init__``; None: it has none in its file."""
    try:
        module, name = split_target(target)
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None
    tree = ast.parse(Path(str(spec.origin)).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    constructors = [
        node
        for node in (classes[0].body if classes else ())
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    if not constructors:
        return None
    given = constructors[0].args
    names = {one.arg for one in (*given.posonlyargs, *given.args[1:], *given.kwonlyargs)}
    return frozenset(names | ({"**"} if given.kwarg else set()))
