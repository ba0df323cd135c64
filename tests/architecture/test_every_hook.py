"""Every hook reaches a plugin with the arguments that are written down here."""

from __future__ import annotations

import inspect
import uuid
from pathlib import Path

import pytest
from trinity.extend import KINDS, AssetSpec, PluginManager
from trinity.extend.hookspecs import TrinityHooks

# A hook may gain an argument; this list then gains it too. It never loses one.
COMPONENT_HOOKS = {
    "trinity_workflows": "workflow",
    "trinity_reward_fns": "reward_fn",
    "trinity_advantage_fns": "advantage_fn",
    "trinity_policy_loss_fns": "policy_loss_fn",
    "trinity_kl_fns": "kl_fn",
    "trinity_entropy_loss_fns": "entropy_loss_fn",
    "trinity_sample_strategies": "sample_strategy",
    "trinity_algorithm_types": "algorithm",
    "trinity_rollout_engines": "rollout_engine",
    "trinity_reply_parsers": "reply_parser",
    "trinity_trainers": "trainer",
    "trinity_sync_methods": "sync_method",
    "trinity_storages": "storage",
    "trinity_priority_fns": "priority_fn",
    "trinity_experience_operators": "experience_operator",
    "trinity_task_selectors": "task_selector",
    "trinity_monitors": "monitor",
    "trinity_advisors": "advisor",
    "trinity_endpoints": "endpoint",
    "trinity_run_modes": "run_mode",
    "trinity_sandboxes": "sandbox",
}
OTHER_HOOKS = {
    "trinity_commands": (),
    "trinity_conformance_checks": (),
    "trinity_published_modules": (),
    "trinity_config_generators": (),
    "trinity_assets": (),
    "trinity_config_notes": ("config",),
    "trinity_configure": ("config",),
    "trinity_run_started": ("run",),
    "trinity_step_finished": ("step", "metrics"),
    "trinity_checkpoint_saved": ("path",),
    "trinity_run_finished": ("run",),
}


def a_plugin_folder(folder: Path, source: str) -> Path:
    """Write a module of a new name, which nothing has imported yet."""
    (folder / f"plugin_{uuid.uuid4().hex}.py").write_text(source)
    return folder


def test_these_are_all_the_hooks() -> None:
    hooks = [name for name in vars(TrinityHooks) if name.startswith("trinity_")]

    assert hooks == [*COMPONENT_HOOKS, *OTHER_HOOKS]
    assert {kind.hook: kind.name for kind in KINDS.values()} == COMPONENT_HOOKS


def test_a_component_that_a_hook_gives_is_found_by_its_name(tmp_path: Path) -> None:
    given = "".join(
        f"class {hook.title()}: ...\n"
        "@hookimpl\n"
        f"def {hook}():\n"
        f"    return {{'mine': f'{{__name__}}:{hook.title()}'}}\n"
        for hook in COMPONENT_HOOKS
    )
    folder = a_plugin_folder(tmp_path, f"from trinity.extend import hookimpl\n{given}")
    manager = PluginManager.discover(env={}, plugin_dirs=[folder])

    found = {hook: manager.load(kind, "mine").__name__ for hook, kind in COMPONENT_HOOKS.items()}
    assert found == {hook: hook.title() for hook in COMPONENT_HOOKS}


def test_every_kind_has_a_component_of_ours_that_can_be_imported() -> None:
    found = PluginManager.discover(env={}).components()
    ours = {"builtin", "algorithms", "lab", "sandbox", "serve"}
    own = [component for component in found if component.origin.plugin in ours]

    assert {component.kind for component in own} == set(KINDS)
    assert [component for component in own if not isinstance(component.load(), type)] == []


@pytest.mark.parametrize(
    ("hook", "given"),
    [
        ("trinity_commands", "{'mine': 'my_package:app'}"),
        ("trinity_conformance_checks", "{'mine': 'my_package:checks'}"),
        ("trinity_published_modules", "{'trinity.mine': 'my_package.mine'}"),
        ("trinity_config_generators", "{'my_package.settings': 'Buffer'}"),
        ("trinity_assets", "[AssetSpec('mine', 'a file', '1 KB', 'my_package:is_there')]"),
    ],
)
def test_what_a_hook_returns_reaches_the_caller(hook: str, given: str, tmp_path: Path) -> None:
    source = (
        "from trinity.extend import AssetSpec, hookimpl\n"
        "@hookimpl\n"
        f"def {hook}():\n"
        f"    return {given}\n"
    )
    folder = a_plugin_folder(tmp_path, source)
    manager = PluginManager.discover(env={}, plugin_dirs=[folder], autoload=False)

    results = [result for record, result in manager.call(hook) if record.distribution is None]

    assert results == [eval(given, {"AssetSpec": AssetSpec})]


@pytest.mark.parametrize(("hook", "arguments"), [item for item in OTHER_HOOKS.items() if item[1]])
def test_a_hook_gets_its_arguments_by_name(
    hook: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    names = ", ".join(arguments)
    source = (
        "from trinity.extend import hookimpl\n"
        "@hookimpl\n"
        f"def {hook}({names}):\n"
        f"    return {{'got': [{names}]}}\n"
    )
    folder = a_plugin_folder(tmp_path, source)
    manager = PluginManager.discover(env={}, plugin_dirs=[folder], autoload=False)

    results = manager.call(hook, **{name: name.upper() for name in arguments})

    assert {"got": [name.upper() for name in arguments]} in [result for _, result in results]


def test_no_hook_lost_an_argument() -> None:
    arguments = {
        hook: tuple(inspect.signature(getattr(TrinityHooks, hook)).parameters)
        for hook in OTHER_HOOKS
    }

    assert arguments == {hook: ("self", *names) for hook, names in OTHER_HOOKS.items()}
