"""Train small matrices beside frozen weights (LoRA, arXiv 2106.09685), through the package peft.

y = W x + s B A x          W frozen, A and B trained; whoever asks for weights gets W + s B A
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor

from trinity.common.ports.weights import LORA_A, LORA_B, TensorStream
from trinity.errors import CheckpointError, ConfigError, NotSupportedYetError
from trinity.extend import KINDS, get_manager
from trinity.trainer import dtensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor, nn
    from transformers import PreTrainedModel

    from trinity.common.config import Config
    from trinity.common.config.model import LoRAConfig

FOLDER = "adapter"
WEIGHTS_FILE = "adapter_model.safetensors"
_IN_PEFT = "base_model.model."  # before each name in peft's files; not in those of older versions
_NAME = "default"
_LEAVE_WEIGHTS = {True, False, "gaussian", "eva", "orthogonal"}  # ways to begin; PiSSA changes W
_BEYOND = ("bias", "use_dora", "lora_bias", "modules_to_save", "trainable_token_indices")


class Adapters:
    """The adapters of a model, which are put into it here.

    Args:
        module: the transformers model, frozen, in the type that it computes in.
        config: one entry of ``model.lora_configs``; with a path, the adapters of that folder go on.
        name: of these among all in the model; no part of another's.
        number: of the entry.
        may_adapt_head: whether the output layer may get one.

    Raises:
        ConfigError: peft is not installed, or the folder holds no adapters.
        NotSupportedYetError: the output layer would get one, and may not.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        config: LoRAConfig,
        *,
        name: str = _NAME,
        number: int = 0,
        may_adapt_head: bool = False,
    ) -> None:
        peft = _peft()
        self._module = module
        self._name = name
        is_first = not any(".lora_" in one for one, _ in module.named_parameters())
        place = f"model.lora_configs.{number}"
        self._config = _read_config(config.path, place) if config.path else _made_config(config)
        head = module.get_output_embeddings()
        try:
            with warnings.catch_warnings():
                if may_adapt_head or not is_first:  # several, and one on a tied layer, are meant
                    warnings.simplefilter("ignore", UserWarning)
                peft.inject_adapter_in_model(self._config, module, adapter_name=name)
        except ValueError as error:
            raise ConfigError(
                f"{place}.target_modules fits no layer: {error}. "
                "Use all-linear, or names such as q_proj,v_proj."
            ) from error
        if module.get_output_embeddings() is not head and not may_adapt_head:
            raise NotSupportedYetError(
                f"{place}.target_modules names the output layer, which the trainer computes "
                f"apart. Leave it out: all-linear does."
            )
        embedding = getattr(module.get_input_embeddings(), "base_layer", None)
        if embedding is not None and embedding.weight is head.weight and not may_adapt_head:
            raise NotSupportedYetError(
                f"{place}.target_modules names the embedding, which is the output layer, too. "
                f"Leave it out: all-linear does."
            )
        for parameter in self.parameters:  # peft gives them the type of what they stand beside
            parameter.data = parameter.data.float()
        if is_first:  # what layers add to the embedding is summed in float32, whatever is frozen
            module.get_input_embeddings().register_forward_hook(lambda _m, _given, out: out.float())
        module.eval()
        if config.path and module.device.type != "meta":  # else another rank has their numbers
            self._load_tensors(config.path)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Return what is trained."""
        named = self._module.named_parameters()
        return [one for name, one in named if ".lora_" in name and f".{self._name}" in name]

    def activate(self) -> None:
        """Compute with these, and with no other adapters of the model."""
        for layer in _layers(self._module):
            layer.set_adapter(self._name)

    def remove(self) -> None:
        """Take them out of the model."""
        for layer in _layers(self._module):
            layer.set_adapter([])
            layer.delete_adapter(self._name)
        del self._module.peft_config[self._name]

    def stream(self, *, is_kept: bool) -> TensorStream:
        """Return the weights by their names in the plain model, adapters added in when read.

        Args:
            is_kept: False: of weights that are sharded, this rank only gives its shards.
        """
        adapted = dict(self._adapted())
        parameters = {
            name.replace(".base_layer", ""): parameter.detach()
            for name, parameter in self._module.named_parameters()
            if ".lora_" not in name
        }

        @torch.no_grad()
        def made(name: str) -> Tensor:
            own, part = parameters[name], adapted.get(name)
            is_sharded = isinstance(own, DTensor)  # else each rank has it
            value: Tensor = dtensor.full_tensor(own)
            if part is not None and (is_kept or not is_sharded):
                value = value.float() + part.get_delta_weight(self._name).to(value.device)
            return value.cpu() if is_sharded and is_kept else value

        like = {
            name: torch.empty(
                own.shape, device="meta", dtype=torch.float32 if name in adapted else own.dtype
            )
            for name, own in parameters.items()
        }
        is_gathered = any(isinstance(own, DTensor) for own in parameters.values())
        return TensorStream(like, made, is_gathered=is_gathered)

    @torch.no_grad()
    def factors(self) -> dict[str, Tensor]:
        """Return the adapters alone, as ``WeightSnapshot`` names them.

        Empty: one is no product of two factors, as a layer of another kind may have it.
        """
        tensors: dict[str, Tensor] = {}
        for name, part in self._adapted():
            is_other = part.fan_in_fan_out or hasattr(part, "parameter_name")  # of experts
            if is_other or self._name not in getattr(part, "lora_A", {}):
                return {}
            scaling = part.scaling[self._name]
            tensors[name + LORA_A] = part.lora_A[self._name].weight.detach()
            tensors[name + LORA_B] = part.lora_B[self._name].weight.detach() * scaling
        return tensors

    def _adapted(self) -> Iterator[tuple[str, Any]]:  # Any: layers of peft
        for name, part in self._module.named_modules():
            if hasattr(part, "get_delta_weight") and self._name in part.scaling:
                plain = name.replace(".base_layer", "")  # one matrix of experts stands in another's
                yield f"{plain}.{getattr(part, 'parameter_name', 'weight')}", part

    def save(self, directory: Path, *, folder_name: str = FOLDER) -> None:
        """Write the adapters as peft reads them, into a folder of their own."""
        from safetensors.torch import save_file

        folder = directory / folder_name
        folder.mkdir(parents=True, exist_ok=True)
        self._config.save_pretrained(str(folder))
        named = {
            f"{_IN_PEFT}{name}": tensor.detach().cpu().contiguous()
            for name, tensor in self._tensors().items()
        }
        save_file(named, folder / WEIGHTS_FILE)

    def load(self, directory: Path, *, folder_name: str = FOLDER) -> None:
        """Go on from what :meth:`save` wrote.

        Raises:
            CheckpointError: there are none, or they are of other layers.
        """
        try:
            self._load_tensors(directory / folder_name)
        except ConfigError as error:
            raise CheckpointError(
                f"{error} Set model.lora_configs as the run began with."
            ) from error

    def _tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = _peft().get_peft_model_state_dict(
            self._module, adapter_name=self._name, save_embedding_layers=False
        )
        return tensors

    def _load_tensors(self, folder: Path | str) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            found = load_file(f"{folder}/{WEIGHTS_FILE}")
            tensors = {name.removeprefix(_IN_PEFT): tensor for name, tensor in found.items()}
            shapes = {name: tensor.shape for name, tensor in tensors.items()}
            if shapes != {name: tensor.shape for name, tensor in self._tensors().items()}:
                raise ValueError("they are of other layers or of another rank")
            _peft().set_peft_model_state_dict(self._module, tensors, adapter_name=self._name)
        except (OSError, SafetensorError, ValueError) as error:
            raise ConfigError(
                f"the adapters of {str(folder)!r} cannot be used: {error}."
            ) from error


def is_own_reference(module: nn.Module) -> bool:
    """Return whether the model without its adapters is the one that they were put into.

    Not where more than adapters is trained, nor with those that changed the model (PiSSA).
    """
    configs = getattr(module, "peft_config", {}).values()
    is_frozen = not any(p.requires_grad for n, p in module.named_parameters() if ".lora_" not in n)
    leave = [c.init_lora_weights in _LEAVE_WEIGHTS and not c.layer_replication for c in configs]
    return is_frozen and bool(leave) and all(leave)


@contextmanager
def without_adapters(module: nn.Module) -> Iterator[None]:
    """Compute with the frozen model alone in the block."""
    layers = _layers(module)
    try:
        for layer in layers:
            layer.enable_adapters(enabled=False)
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(enabled=True)


def _layers(module: nn.Module) -> list[Any]:  # Any: of peft
    return [part for part in module.modules() if hasattr(part, "get_delta_weight")]


def travel_alone(config: Config) -> bool:
    """Return whether the engines add adapters to a base model with the trainer's numbers."""
    rollout = config.explorer.rollout_model
    if not rollout.engine_type or config.mode != "both":  # another process needs whole weights
        return False
    is_same = rollout.model_path in {None, config.model.model_path}
    is_same &= rollout.dtype == config.trainer.precision
    component = get_manager().find("rollout_engine", rollout.engine_type)
    return is_same and KINDS["rollout_engine"].can(component, "adapters")


def _made_config(config: LoRAConfig) -> Any:  # Any: a LoraConfig of peft
    return _peft().LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules=_names(config.target_modules),
        exclude_modules=_names(config.exclude_modules),
        lora_dropout=0.0,  # a log-probability is one number
        bias="none",
        task_type="CAUSAL_LM",
    )


def _read_config(path: str, place: str) -> Any:  # Any: a LoraConfig of peft
    try:
        config = _peft().PeftConfig.from_pretrained(path)
        if more := [name for name in _BEYOND if (getattr(config, name, 0) or "none") != "none"]:
            raise ValueError(f"{more[0]} trains more than the two factors that engines get")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{place}.path {path!r} holds no LoRA adapters: {error}. "
            "Give a folder that peft wrote, or leave it out."
        ) from error
    config.inference_mode, config.lora_dropout = False, 0.0
    return config


def _names(words: str | None) -> str | list[str] | None:
    """Return several names as a list; one word, or a pattern, as it is."""
    return words.split(",") if words and "," in words else words


def _peft() -> Any:  # Any: a package that may be missing
    try:
        import peft  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ConfigError(
            "model.lora_configs needs the package peft, which is not installed. "
            "Install it: pip install 'trinity-core[lora]'."
        ) from error
    return peft
