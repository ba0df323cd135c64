"""The model that an engine runs: how it is loaded, set, and given new weights."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trinity.common.models.pretrained import load_pretrained, no_progress_bars
from trinity.common.ports.weights import TensorStream
from trinity.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from transformers import PreTrainedModel

_SMALL_MODEL = 50_000_000  # parameters; below, threads wait for each other longer than they work


def twin_of(module: PreTrainedModel) -> PreTrainedModel:
    """Return a model on the same tensors that is in evaluation mode and takes no gradients.

    Whoever trains ``module`` changes the twin's weights with it, in place. How the engine sets the
    twin does not show there, also while a request that nobody waits for any more is being answered.

    A weight that requires a gradient lets ``matmul`` take another kernel, also where none is
    computed: the samples of the module itself would differ in the last bits from those of a copy.
    """
    hooks = [hook for part in module.modules() for hook in _hooks(part)]
    made: dict[int, Any] = {id(same): same for same in (*module.buffers(), *hooks)}
    for weight in module.parameters():
        made[id(weight)] = nn.Parameter(weight.detach(), requires_grad=False)
    twin = deepcopy(module, made)
    twin.train(mode=False)
    return twin


def _hooks(part: nn.Module) -> list[Any]:
    """Return what was hung on a part; a copy of a method would take its owner with it."""
    named = [held for name, held in vars(part).items() if name.endswith("_hooks")]
    return [hook for hooks in named if isinstance(hooks, dict) for hook in hooks.values()]


def set_threads(module: PreTrainedModel, num_threads: int | None) -> None:
    """Set how many threads torch uses in this process; None: 1 for a small model on a CPU."""
    if num_threads is None and module.device.type == "cpu":
        is_small = module.num_parameters() < _SMALL_MODEL
        num_threads = 1 if is_small else None
    if num_threads is not None:
        torch.set_num_threads(num_threads)


_DTYPES = {
    "auto": "auto",
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_model(
    model_path: str, *, dtype: str, device: torch.device, trust_remote_code: bool
) -> PreTrainedModel:
    """Return the model in evaluation mode, all of its weights read from safetensors.

    Raises:
        ModelError: the dtype is unknown, the model cannot be read, or weights are missing.
    """
    if dtype not in _DTYPES:
        raise ModelError(f"dtype {dtype!r} is unknown; use one of {', '.join(_DTYPES)}.")
    from transformers import AutoModelForCausalLM

    with no_progress_bars():
        module, report = load_pretrained(
            AutoModelForCausalLM.from_pretrained,
            model_path,
            dtype=_DTYPES[dtype],
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"the model {model_path!r} lacks {len(missing)} weights, {missing[0]!r} among them. "
            f"They would be random: write the folder again with save_pretrained."
        )
    return module.to(device).eval().requires_grad_(requires_grad=False)


def end_tokens(module: PreTrainedModel, model_path: str) -> Tensor:
    """Return which tokens end a reply, ``[V]``.

    As the generation config names them, else the model's config, else the tokenizer.
    """
    vocab = module.get_output_embeddings().weight.shape[0]
    is_end_V = torch.zeros(vocab, dtype=torch.bool, device=module.device)
    is_end_V[[token for token in _end_ids(module, model_path) if token < vocab]] = True
    return is_end_V


def _end_ids(module: PreTrainedModel, model_path: str) -> list[int]:
    for config in (module.generation_config, module.config):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return [ids] if isinstance(ids, int) else list(ids)
    from transformers import AutoTokenizer

    try:
        token = load_pretrained(AutoTokenizer.from_pretrained, model_path).eos_token_id
    except ModelError:  # a folder without a tokenizer: replies end by their length
        return []
    return [] if token is None else [token]


def pick_device(device: str | None) -> torch.device:
    """Return the device; None: the GPU if there is one."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


@torch.no_grad()
def copy_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors into the module; all of them fit, or nothing is changed.

    Tied weights may come under any one of their names, or under all of them with equal values.

    Raises:
        ModelError: a name is unknown, a weight is missing, a shape differs, tied weights differ.
    """
    targets = module.state_dict(keep_vars=True)
    like = tensors.like if isinstance(tensors, TensorStream) else tensors
    _check_names(module, targets, like)
    _check_shapes(targets, like)
    if len({id(targets[name]) for name in like}) < len(like):  # tied: their values are compared
        tensors = dict(tensors)
        _check_tied(targets, tensors)
    for name, tensor in tensors.items():
        targets[name].copy_(tensor)


def _check_names(
    module: nn.Module, targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> None:
    for name in tensors:
        if name not in targets:
            raise ModelError(
                f"the snapshot holds a weight {name!r} that the engine's model does not have."
                f"{did_you_mean(name, targets)} Trainer and engine need the same model_path."
            )
    given = {id(targets[name]) for name in tensors}
    missing = [name for name, weight in module.named_parameters() if id(weight) not in given]
    if missing:
        raise ModelError(
            f"the snapshot lacks {len(missing)} weights of the engine's model, {missing[0]!r} "
            f"among them. Trainer and engine need the same model_path."
        )


def _check_shapes(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.shape != targets[name].shape:
            raise ModelError(
                f"the weight {name!r} has shape {list(tensor.shape)} in the snapshot, but "
                f"{list(targets[name].shape)} in the engine's model. "
                f"Trainer and engine need the same model_path."
            )


def _check_tied(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        other = first.setdefault(id(targets[name]), name)
        if tensor is tensors[other] or tensor.data_ptr() == tensors[other].data_ptr():
            continue
        if not torch.equal(tensor, tensors[other]):
            raise ModelError(
                f"the engine's model ties {name!r} to {other!r}, but the snapshot holds different "
                f"values for them. Set tie_word_embeddings in the model's config.json as trained."
            )
