"""A plugin or a distribution that is ill made hurts itself and nobody else."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from trinity.common.workflows import Workflow
from trinity.errors import PluginError
from trinity.extend import KINDS, ComponentSpec
from trinity.extend.requirements import _is_plainly_met, missing_requirements
from trinity_testing.planning import run_checks

RELEASE = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(
    lambda parts: ".".join(map(str, parts))
)

HOOK = """
from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1
{extra}

@hookimpl
def {hook}():
    return {given}
"""


def state_of(site, name):
    return {record.name: record for record in site.discover().records}[name]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("'a:B', needs='logprobs'", "needs is 'logprobs', not a collection of strings"),
        ("'a:B', aliases=None", "aliases is None, not a collection of strings"),
        ("3", "target is 3, not a string"),
        ("'a:B', checks=print", "checks is <built-in function print>, not a string"),
        ("'a:B', default_for='tpu'", "default_for is 'tpu', not 'cpu' or 'gpu'"),
    ],
)
def test_a_spec_of_the_wrong_types_breaks_its_plugin_only(dull, capsys, arguments, what):
    given = f"{{'odd': ComponentSpec({arguments})}}"
    dull.plugin("odd", HOOK.format(extra="", hook="trinity_workflows", given=given))
    record = state_of(dull, "odd")
    assert record.state == "broken"
    assert what in record.message
    assert state_of(dull, "dull").state == "ok"


def test_a_spec_takes_any_collection_of_words():
    spec = ComponentSpec("a:B", needs={"logprobs"}, aliases=["b"])
    assert (spec.needs, spec.aliases) == (frozenset({"logprobs"}), ("b",))


@pytest.mark.parametrize(
    ("hook", "given"),
    [
        ("trinity_commands", "None"),
        ("trinity_commands", "{'x': 3}"),
        ("trinity_conformance_checks", "3"),
        ("trinity_assets", "[3]"),
    ],
)
def test_a_hook_that_returns_another_shape_is_said_and_left_out(dull, capsys, hook, given):
    dull.plugin("odd", HOOK.format(extra="", hook=hook, given=given))
    assert dull.discover().call(hook) == []
    line = capsys.readouterr().err
    assert f"hook {hook} of plugin odd (trinity-odd 1.0) failed: TypeError: it returned" in line


def test_a_hook_with_arguments_that_it_does_not_get_says_which(dull, capsys):
    source = HOOK.format(extra="", hook="trinity_workflows", given="{}")
    dull.plugin("odd", source.replace("workflows()", "workflows(config)"))
    record = state_of(dull, "odd")
    assert record.state == "broken"
    assert "'trinity_workflows': Argument(s) {'config'} are declared" in record.message
    assert record.remedy.startswith("correct it")


def test_a_requirement_that_is_none_makes_its_own_plugin_incompatible(dull, dull_source, capsys):
    dull.plugin("odd", dull_source, requires="trinity-core >= banana")
    assert state_of(dull, "odd").state == "incompatible"
    assert state_of(dull, "dull").state == "ok"
    (line,) = missing_requirements(["???"], records=[])
    assert line.startswith("plugins.require: '???' is no requirement.")


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_note_of_pip_that_cannot_be_read_is_no_reason_to_stop(dull, dull_source, text):
    dull.plugin("odd", dull_source, extra={"direct_url.json": text})
    assert state_of(dull, "odd").source == "wheel"


def test_a_distribution_without_metadata_goes_by_its_module(dull, dull_source):
    module = dull.plugin("odd", dull_source)
    (dull.path / "trinity_odd-1.0.dist-info" / "METADATA").unlink()
    record = state_of(dull, "odd")
    assert (record.distribution, record.state) == (module.replace("_", "-"), "ok")


def test_what_a_plugin_prints_when_it_is_imported_goes_to_stderr(dull, capsys):
    source = HOOK.format(extra="print('hello')", hook="trinity_workflows", given="{}")
    dull.plugin("odd", source)
    assert state_of(dull, "odd").state == "ok"
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "hello\n")
    results = run_checks("odd", dull.discover(), ids=["import.no_side_effects"])
    assert "prints" in results[0].message


def test_a_plugin_that_did_not_load_is_not_blamed_for_its_api_too(dull, capsys):
    dull.plugin("odd", "TRINITY_PLUGIN_API = 1\nimport textworld_that_is_not_there\n")
    (result,) = run_checks("odd", dull.discover(), ids=["static.api_declared"])
    assert result.status.value == "SKIP"


def test_a_dotted_path_that_leads_nowhere_says_how_a_module_is_found(dull):
    with pytest.raises(PluginError) as raised:
        dull.discover().load("workflow", "not_there.parts:Maze")
    assert str(raised.value) == (
        "workflow 'not_there.parts:Maze' cannot be loaded: ModuleNotFoundError: No module named "
        "'not_there'. Correct it; a module of yours is found below the working directory, by "
        "--plugin-dir or PYTHONPATH."
    )


@given(core=RELEASE, clauses=st.lists(st.tuples(st.sampled_from(["<", "<=", ">", ">="]), RELEASE)))
def test_the_short_way_to_compare_versions_agrees_with_packaging(core, clauses):
    bounds = ",".join(sign + version for sign, version in clauses)
    expected = bool(clauses) and SpecifierSet(bounds).contains(core)
    assert _is_plainly_met(f"trinity-core{bounds}", core) == expected


def test_a_workflow_that_does_not_say_how_it_is_built_is_not_refused_for_that() -> None:
    class Rows(dict, Workflow):
        def run(self) -> list:
            return []

    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(Rows)
    assert KINDS["workflow"].unbuildable(Rows) is None
