"""The small sections: ``cluster``, ``log``, ``monitor``, ``plugins``, ``service``, ``stages``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.base import Lowercase, StrictModel, core, machine, not_yet, other
from trinity.common.config.buffer import BufferConfig, DataProcessorConfig
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.config.trainer import TrainerConfig

#: null means the same as 0
_Count = Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)]


class ClusterConfig(StrictModel):
    """``cluster``: the machines of the run."""

    ray_address: str = other("auto", "address of the Ray cluster", used_by="runs on Ray")
    node_num: _Count = machine(0, "number of machines; 0: all", ge=0)
    gpu_per_node: _Count = machine(0, "GPUs per machine; 0: all", ge=0)


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class LogConfig(StrictModel):
    """``log``: what is logged."""

    level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
    ] = core("INFO", "lowest level to show")
    secrets: list[str] = core(
        [], "names of further settings and environment variables whose values are masked"
    )
    group_by_node: bool = other(False, "one folder of logs per machine", used_by="older versions")


class OtherMonitor(StrictModel):
    """An entry of ``monitor.also``."""

    monitor_type: Annotated[str, Lowercase] = core("", "the monitor")
    monitor_args: dict[str, Any] | None = core(None, "its arguments")


class MonitorConfig(OtherMonitor):
    """``monitor``: where metrics go, beside the jsonl file that is always written."""

    monitor_type: Annotated[str, Lowercase] = core("tensorboard", "the monitor")
    monitor_args: dict[str, Any] | None = core(None, "arguments of the monitor")
    also: list[OtherMonitor] = core([], "further monitors with their arguments")
    sample_interval: int = core(0, "train steps between samples shown as text; 0: never", ge=0)
    num_samples: int = core(8, "number of samples to show", ge=1)
    detailed_stats: bool = core(False, "add standard deviation, minimum and maximum to each mean")
    enable_ray_timeline: bool = other(False, "write Ray's timeline", used_by="older versions")

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        """Read a name as the monitor's: published tuners assign one to the whole section."""
        return {"monitor_type": value} if isinstance(value, str) else value


class PluginsConfig(StrictModel):
    """``plugins``: which plugins the run uses. It never installs anything."""

    autoload: bool = core(True, "use every installed plugin")
    allow: list[str] = core([], "plugins to use if autoload is false")
    disabled: list[str] = core([], "plugins to disable")
    require: list[str] = core([], "required distributions, as in a pip requirement")
    prefer: dict[str, str] = core(
        {}, "component name -> the distribution to use if two plugins register the name"
    )
    report_after_s: float = core(
        60.0, "seconds until a run says which call of a plugin it waits for", gt=0
    )
    end_after_s: float | None = core(
        600.0,
        "seconds until a call of a selector, storage, monitor, hook or advantage function of a "
        "plugin ends the run; of a read: after max_read_timeout; null: never",
        gt=0,
    )


class DataJuicerServiceConfig(StrictModel):
    """``service.data_juicer``: the Data-Juicer service."""

    server_url: str | None = not_yet(None, "address of the service")
    auto_start: bool = not_yet(False, "start it with the run")
    port: int | None = not_yet(None, "port to start it at")


class ServiceConfig(StrictModel):
    """``service``: external services."""

    data_juicer: DataJuicerServiceConfig | None = not_yet(None, "the Data-Juicer service")


CORE_MODES = frozenset({"both", "explore", "train", "bench", "colocate"})
Mode = Literal["both", "explore", "train", "bench", "serve", "colocate"] | str  # a plugin's too


class StageConfig(StrictModel):
    """One entry of ``stages``: a section given here replaces the global one whole."""

    stage_name: str = Field(
        description="name of the stage, the end of its run directory",
        min_length=1,
        json_schema_extra={"status": "core"},
    )
    mode: Annotated[Mode, Lowercase] | None = core(None, "what the stage does")
    algorithm: AlgorithmConfig | None = core(None, "the stage's algorithm")
    buffer: BufferConfig | None = core(None, "the stage's buffer")
    data_processor: DataProcessorConfig | None = core(None, "the stage's data_processor")
    explorer: ExplorerConfig | None = core(None, "the stage's explorer")
    trainer: TrainerConfig | None = core(None, "the stage's trainer")
