"""The model of one agent: a run's frozen model with one of its adapters merged in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from pathlib import Path

    from trinity_lab.models import Model

_ADAPTERS = "adapter"  # the folder of a checkpoint's actor


def names_of(model: Model) -> list[str]:
    """Return the names of a checkpoint's adapters; none: it has one at most."""
    assert model.checkpoint is not None
    return sorted(path.name for path in (model.checkpoint.actor / _ADAPTERS).glob("*/"))


def check_adapter(model: Model, name: str) -> None:
    """Hold that an adapter is named where there are several, and that it is one of them.

    Raises:
        ConfigError: the message lists them.
    """
    names = names_of(model)
    assert model.checkpoint is not None
    if names and not name:
        raise ConfigError(
            f"{model.checkpoint.path} holds the adapters of several agents: {', '.join(names)}. "
            f"Name one: --adapter {names[0]}."
        )
    if name and not names:
        raise ConfigError(
            f"{model.checkpoint.path} holds one model, and no adapters of several agents. Leave "
            f"out --adapter."
        )
    if name and name not in names:
        raise ConfigError(f"{model.checkpoint.path}: {unknown_name('adapter', name, names)}")


def refuse_agents(model: Model) -> None:
    """Refuse a model folder that holds only adapters, without weights of its own.

    Raises:
        ConfigError: it is a checkpoint of several agents, each with an adapter.
    """
    if model.checkpoint is not None and (names := names_of(model)):
        raise ConfigError(
            f"{model.label} holds the adapters of several agents, and no model. A team is "
            f"evaluated in its run, by buffer.explorer_input.eval_tasksets; one agent as a model: "
            f"trinity export {model.checkpoint.path} --adapter {names[0]} --to FOLDER."
        )


def write_merged(model: Model, name: str, to: Path) -> None:
    """Write the run's model, with an adapter merged in and in its own number format, to a folder.

    Raises:
        ConfigError: peft is not installed.
        ModelError: the run's model is not there any more.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trinity.errors import ModelError

    try:
        from peft import PeftModel
    except ImportError as error:
        raise ConfigError(
            "--adapter needs the package peft. Install it: pip install 'trinity-lab[lora]'."
        ) from error
    assert model.checkpoint is not None
    settings = model.settings["model"]
    may_run_code = bool(settings.get("trust_remote_code"))
    try:
        base = AutoModelForCausalLM.from_pretrained(
            settings["model_path"], trust_remote_code=may_run_code
        )
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model.model_path of the run, {settings['model_path']}, cannot be read: "
            f"{str(error).splitlines()[0]} A relative path counts from the folder in which the run "
            f"started: export there. The adapter alone is in "
            f"{model.checkpoint.actor / _ADAPTERS / name}."
        ) from error
    adapted = PeftModel.from_pretrained(base, model.checkpoint.actor / _ADAPTERS / name)
    adapted.merge_and_unload().save_pretrained(to)
    AutoTokenizer.from_pretrained(model.path, trust_remote_code=may_run_code).save_pretrained(to)
