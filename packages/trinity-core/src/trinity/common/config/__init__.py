"""The configuration: YAML in, pydantic models out, in four steps with four rights.

``load_config`` parses and may only reject; ``probe`` looks at the machine and changes nothing;
``resolve`` is pure and fills in what follows; ``check`` compares and changes nothing.
"""

from __future__ import annotations

from trinity.common.config.algorithm import AlgorithmConfig, OptimizerConfig
from trinity.common.config.base import StrictModel
from trinity.common.config.buffer import (
    BufferConfig,
    DataProcessorConfig,
    DataSelectorConfig,
    ExperienceBufferConfig,
    ExperiencePipelineConfig,
    ExplorerInput,
    FormatConfig,
    GenerationConfig,
    OperatorConfig,
    ReplayBufferConfig,
    TaskPipelineConfig,
    TasksetConfig,
    TrainerInput,
)
from trinity.common.config.check import check
from trinity.common.config.config import Config
from trinity.common.config.explorer import DynamicTimeoutConfig, ExplorerConfig, OverRolloutConfig
from trinity.common.config.inference_model import InferenceModelConfig
from trinity.common.config.load import load_config
from trinity.common.config.machine import Machine, probe
from trinity.common.config.model import ExternalModelConfig, LoRAConfig, ModelConfig, TinkerConfig
from trinity.common.config.preparation import prepared_stages
from trinity.common.config.problem import Problem
from trinity.common.config.resolve import resolve, resolve_stages
from trinity.common.config.run import (
    ClusterConfig,
    DataJuicerServiceConfig,
    LogConfig,
    MonitorConfig,
    PluginsConfig,
    ServiceConfig,
    StageConfig,
)
from trinity.common.config.synchronizer import SynchronizerConfig
from trinity.common.config.trainer import MegatronParallelConfig, TrainerConfig

__all__ = [
    "AlgorithmConfig",
    "BufferConfig",
    "ClusterConfig",
    "Config",
    "DataJuicerServiceConfig",
    "DataProcessorConfig",
    "DataSelectorConfig",
    "DynamicTimeoutConfig",
    "ExperienceBufferConfig",
    "ExperiencePipelineConfig",
    "ExplorerConfig",
    "ExplorerInput",
    "ExternalModelConfig",
    "FormatConfig",
    "GenerationConfig",
    "InferenceModelConfig",
    "LoRAConfig",
    "LogConfig",
    "Machine",
    "MegatronParallelConfig",
    "ModelConfig",
    "MonitorConfig",
    "OperatorConfig",
    "OptimizerConfig",
    "OverRolloutConfig",
    "PluginsConfig",
    "Problem",
    "ReplayBufferConfig",
    "ServiceConfig",
    "StageConfig",
    "StrictModel",
    "SynchronizerConfig",
    "TaskPipelineConfig",
    "TasksetConfig",
    "TinkerConfig",
    "TrainerConfig",
    "TrainerInput",
    "check",
    "load_config",
    "prepared_stages",
    "probe",
    "resolve",
    "resolve_stages",
]
