"""The hooks: one for each kind of component, then those of a run's life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trinity.extend.component import AssetSpec, ComponentSpec, EnvironmentSpec

__all__ = ["PLUGIN_API", "PLUGIN_API_OLDEST", "TrinityHooks", "hookimpl", "hookspec"]

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
        """Return workflows: how a model acts on a task."""

    @hookspec
    def trinity_reward_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return reward functions: what a response is worth."""

    @hookspec
    def trinity_advantage_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return advantage functions: what a token is taught."""

    @hookspec
    def trinity_policy_loss_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return policy losses: what a batch teaches."""

    @hookspec
    def trinity_kl_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return divergences from the reference model."""

    @hookspec
    def trinity_entropy_loss_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return entropy losses: what keeps the policy from certainty."""

    @hookspec
    def trinity_sample_strategies(self) -> Mapping[str, str | ComponentSpec]:
        """Return sample strategies: what a batch holds."""

    @hookspec
    def trinity_algorithm_types(self) -> Mapping[str, str | ComponentSpec]:
        """Return algorithms: which parts go together."""

    @hookspec
    def trinity_rollout_engines(self) -> Mapping[str, str | ComponentSpec]:
        """Return rollout engines: what samples with the model."""

    @hookspec
    def trinity_reply_parsers(self) -> Mapping[str, str | ComponentSpec]:
        """Return parsers of replies: which tools a reply calls, and what of it is reasoning."""

    @hookspec
    def trinity_trainers(self) -> Mapping[str, str | ComponentSpec]:
        """Return trainers: what turns a batch into better weights."""

    @hookspec
    def trinity_sync_methods(self) -> Mapping[str, str | ComponentSpec]:
        """Return ways in which weights reach the rollout engines."""

    @hookspec
    def trinity_storages(self) -> Mapping[str, str | ComponentSpec]:
        """Return storages: where experiences wait for the trainer."""

    @hookspec
    def trinity_priority_fns(self) -> Mapping[str, str | ComponentSpec]:
        """Return priority functions: which experiences a priority queue gives first."""

    @hookspec
    def trinity_experience_operators(self) -> Mapping[str, str | ComponentSpec]:
        """Return operators: what happens to experiences before they are stored."""

    @hookspec
    def trinity_task_selectors(self) -> Mapping[str, str | ComponentSpec]:
        """Return task selectors: the order in which the rows of a taskset are read."""

    @hookspec
    def trinity_monitors(self) -> Mapping[str, str | ComponentSpec]:
        """Return monitors: where metrics go."""

    @hookspec
    def trinity_commands(self) -> Mapping[str, str]:
        """Return commands of the command line: name -> ``"module:typer_app"``, imported on use."""

    @hookspec
    def trinity_conformance_checks(self) -> Mapping[str, str]:
        """Return groups of conformance checks: group -> ``"module:checks"``, imported on use."""

    @hookspec
    def trinity_published_modules(self) -> Mapping[str, str]:
        """Return whole modules of published import paths: path -> name of the module found there.

        Such as ``{"trinity.utils.log": "my_package.log"}``. Nothing is imported until the path is.
        It is the real module, under one more name. A path that the core has stays the core's. A
        name outside ``trinity`` is found by the files of a plugin folder alone, and only where
        nothing else has it.
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
    def trinity_configure(self, config: Any) -> None:  # Any: trinity.common.config.Config
        """Look at the resolved configuration before the run's rooms are built."""

    @hookspec
    def trinity_run_started(self, run: Any) -> None:  # Any: the runtime's record of the run
        """Note that a run has started; ``run`` describes it."""

    @hookspec
    def trinity_step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """Note that an optimizer step is done, with its metrics."""

    @hookspec
    def trinity_checkpoint_saved(self, path: Path) -> None:
        """Note that a checkpoint is complete in the folder ``path``."""

    @hookspec
    def trinity_run_finished(self, run: Any) -> None:  # Any: the runtime's record of the run
        """Note that a run has ended, well or not; ``run`` describes it."""
