"""The engines of judges and teachers: in the process that runs the workflows, never synced."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from trinity.common.models.auxiliary import Auxiliary, AuxiliaryModel, ExternalModel
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.errors import ConfigError
from trinity.runtime.assembly import make_engine

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.common.config.inference_model import InferenceModelConfig
    from trinity.common.ports import EndpointOpener
    from trinity.extend import PluginManager

_FOLLOWS = ("engine_type", "dtype", "seed")  # the trained model's engine, where they are not set


def make_auxiliary_models(
    config: Config, manager: PluginManager, *, endpoints: EndpointOpener | None
) -> list[Auxiliary]:
    """Return the models of ``explorer.auxiliary_models``, in their order.

    Args:
        config: a resolved configuration.
        manager: the plugins.
        endpoints: of this process.

    Raises:
        ModelError: one cannot be loaded.
        ConfigError: the environment does not say where an external one is.
    """
    made: list[Auxiliary] = []
    try:
        for section in config.explorer.auxiliary_models:
            if section.external_model_config.enable:
                made.append(_external(section, config))
            else:
                made.append(_made(section, config, manager, endpoints=endpoints))
    except BaseException:
        for model in made:
            model.close()
        raise
    return made


def _made(
    section: InferenceModelConfig,
    config: Config,
    manager: PluginManager,
    *,
    endpoints: EndpointOpener | None,
) -> AuxiliaryModel:
    trained = config.explorer.rollout_model
    unset = [name for name in _FOLLOWS if getattr(section, name) is None]
    whole = section.model_copy(update={name: getattr(trained, name) for name in unset})
    engines = tuple(
        make_engine(config, manager, rollout=whole) for _ in range(max(1, section.engine_num))
    )
    given = ModelSettings.of(section, config.model)
    settings = replace(given, enable_openai_api=True, is_trained=False, adapters=())
    chat_format = ChatFormat.load(
        settings.model_path,
        chat_template=config.model.custom_chat_template if not section.model_path else None,
        trust_remote_code=section.trust_remote_code,
    )
    model = ModelWrapper(engines[0], chat_format, settings, endpoints=endpoints)
    return AuxiliaryModel(model=model, engines=engines)


def _external(section: InferenceModelConfig, config: Config) -> ExternalModel:
    api = section.external_model_config
    name = api.model_name or section.model_path
    assert name is not None, "config check asks for it"
    missing = [one for one in (api.base_url_env, api.api_key_env) if not os.environ.get(one)]
    if missing:
        raise ConfigError(
            f"explorer.auxiliary_models: {section.name or name!r} is asked by an external API, and "
            f"{' and '.join(missing)} is not set. Set it in the environment of trinity, or name "
            f"another variable in external_model_config."
        )
    return ExternalModel.at(
        os.environ[api.base_url_env],
        api_key=os.environ[api.api_key_env],
        name=name,
        settings=replace(ModelSettings.of(section, config.model), model_path=name),
    )
