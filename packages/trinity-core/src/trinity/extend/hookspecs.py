"""The hooks: one for each kind of component, then those of a run's life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trinity.extend.component import AssetSpec, ComponentSpec, EnvironmentSpec

PLUGIN_API = 1  # what a plugin module declares as TRINITY_PLUGIN_API
PLUGIN_API_OLDEST = 1

hookspec = pluggy.HookspecMarker("trinity")
hookimpl = pluggy.HookimplMarker("trinity")


class TrinityHooks(Protocol):
    """What a plugin may implement; each hook is optional.

    A hook that gives components returns a mapping ``name -> "module:Class"``, or ``name ->
    ComponentSpec`` where there is more to say. Nothing is imported until a component is used. What
    a component must be, its :class:`~trinity.extend.kind.Kind` says.
    """

    @hookspec
    def trinity_workflows(self) -> Mapping[str, str | ComponentSpec]:
        """Return workflows: code that runs an agent on a task."""

    @hookspec
    def trinity_reward_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return reward functions, which score responses."""

    @hookspec
    def trinity_advantage_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return advantage functions."""

    @hookspec
    def trinity_policy_loss_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return policy losses."""

    @hookspec
    def trinity_kl_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return KL functions: divergences from the reference model."""

    @hookspec
    def trinity_entropy_loss_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return entropy losses."""

    @hookspec
    def trinity_sample_strategies(self) -> Mapping[str, str | ComponentSpec]:
        """Return sample strategies, which draw batches from the buffer."""

    @hookspec
    def trinity_algorithm_types(self) -> Mapping[str, str | ComponentSpec]:
        """Return algorithms: sets of components."""

    @hookspec
    def trinity_rollout_engines(self) -> Mapping[str, str | ComponentSpec]:
        """Return rollout engines, which generate tokens."""

    @hookspec
    def trinity_reply_parsers(self) -> Mapping[str, str | ComponentSpec]:
        """Return reply parsers, for tool calls and reasoning."""

    @hookspec
    def trinity_trainers(self) -> Mapping[str, str | ComponentSpec]:
        """Return trainers, which run train steps."""

    @hookspec
    def trinity_sync_methods(self) -> Mapping[str, str | ComponentSpec]:
        """Return sync methods: transports of weights to rollout engines."""

    @hookspec
    def trinity_storages(self) -> Mapping[str, str | ComponentSpec]:
        """Return storages, which keep experiences until they are trained."""

    @hookspec
    def trinity_priority_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return priority functions of replay buffers."""

    @hookspec
    def trinity_experience_operators(self) -> Mapping[str, str | ComponentSpec]:
        """Return operators, which filter or change experiences before they are stored."""

    @hookspec
    def trinity_task_selectors(self) -> Mapping[str, str | ComponentSpec]:
        """Return task selectors: orders of the rows of a taskset."""

    @hookspec
    def trinity_monitors(self) -> Mapping[str, str | ComponentSpec]:
        """Return monitors, which receive metrics."""

    @hookspec
    def trinity_advisors(self) -> Mapping[str, str | ComponentSpec]:
        """Return advisors, which say why a run does not learn; every run asks all installed."""

    @hookspec
    def trinity_endpoints(self) -> Mapping[str, str | ComponentSpec]:
        """Return endpoints, through which agents call the model of their rollout by HTTP.

        ``openai`` is the one that `enable_openai_api` and auxiliary models mean.
        """

    @hookspec
    def trinity_run_modes(self) -> Mapping[str, str | ComponentSpec]:
        """Return run modes: values of `mode` beside those of the core."""

    @hookspec
    def trinity_sandboxes(self) -> Mapping[str, str | ComponentSpec]:
        """Return sandboxes, in which programs run that a model wrote."""

    @hookspec
    def trinity_commands(self) -> Mapping[str, str | ComponentSpec]:
        """Return commands of the command line: name -> ``"module:typer_app"``, imported on use.

        With a ``ComponentSpec``, ``trinity --help`` shows its ``summary``.
        """

    @hookspec
    def trinity_conformance_checks(self) -> Mapping[str, str]:
        """Return groups of conformance checks: group -> ``"module:checks"``, imported on use."""

    @hookspec
    def trinity_published_modules(self) -> Mapping[str, str]:
        """Return whole modules of published import paths: path -> name of the module found there.

        Such as ``{"trinity.utils.log": "my_package.log"}``: an alias of the real module, imported
        on use. A path of the core cannot be replaced. A name outside ``trinity`` is visible only to
        files of a plugin folder, and only if no other module has it.
        """

    @hookspec
    def trinity_config_generators(self) -> Mapping[str, str]:
        """Return modules with settings of the configuration page: module -> heading.

        Such as ``{"my_package.settings": "Buffer"}``. Such a module registers functions ``set_*``
        and ``check_*`` with ``CONFIG_GENERATORS`` of ``trinity.manager.config_registry``; its
        settings are drawn below the heading, one of Essential Configs, Important Configs, Model,
        Buffer, Explorer and Synchronizer, Trainer. "": nowhere by themselves. Nothing is imported
        until the page is drawn.
        """

    @hookspec
    def trinity_assets(self) -> Iterable[AssetSpec | EnvironmentSpec]:
        """Return what the plugin needs beside Python packages: data, a binary, a service.

        An ``EnvironmentSpec`` among them is a virtual environment of the plugin's own, for packages
        that cannot be installed beside Trinity's.
        """

    @hookspec
    def trinity_config_notes(self, config: Any) -> Iterable[str]:  # Any: as in trinity_configure
        """Return what `trinity config check` says of a resolved configuration, a line each."""

    @hookspec
    def trinity_configure(self, config: Any) -> None:  # Any: trinity.common.config.Config
        """Called with the resolved configuration, before the run's components are built."""

    @hookspec
    def trinity_run_started(self, run: Any) -> None:  # Any: the runtime's record of the run
        """Called when a run has started; ``run`` describes it."""

    @hookspec
    def trinity_step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called after each train step, with its metrics."""

    @hookspec
    def trinity_checkpoint_saved(self, path: Path) -> None:
        """Called after each checkpoint; it is complete in the folder ``path``."""

    @hookspec
    def trinity_run_finished(self, run: Any) -> None:  # Any: the runtime's record of the run
        """Called when a run has ended, also after a failure; ``run`` describes it."""
