"""Hooks are called plugin by plugin, and a misspelt one is named."""

from __future__ import annotations


def test_a_hook_that_raises_is_named_and_the_others_are_called(site, capsys):
    for name, body in (("bad", "1 / 0"), ("good", "return 7")):
        site.plugin(
            name,
            f"""
            from trinity.extend import hookimpl

            @hookimpl
            def trinity_run_started(run):
                {body}
            """,
        )
    results = site.discover().call("trinity_run_started", run=None)
    assert [(record.name, result) for record, result in results] == [("good", 7)]
    said = capsys.readouterr().err
    assert "hook trinity_run_started of plugin bad (trinity-bad 1.0) failed" in said
    assert "ZeroDivisionError: division by zero at " in said


def test_a_component_hook_that_raises_breaks_its_plugin_only(dull):
    dull.plugin(
        "bad",
        """
        from trinity.extend import hookimpl

        @hookimpl
        def trinity_workflows():
            raise KeyError("lost")
        """,
    )
    manager = dull.discover()
    assert {r.name: r.state for r in manager.records} == {"bad": "broken", "dull": "ok"}


def test_a_component_hook_must_return_a_mapping(site):
    site.plugin(
        "bad",
        """
        from trinity.extend import hookimpl

        @hookimpl
        def trinity_workflows():
            return ["dull"]
        """,
    )
    (record,) = site.discover().records
    assert "not a mapping of names to 'module:Class'" in record.message


def test_a_misspelt_hook_is_named_with_the_nearest(site, capsys, golden):
    site.plugin(
        "typo",
        """
        from trinity.extend import hookimpl

        TRINITY_PLUGIN_API = 1

        @hookimpl
        def trinity_workflow():
            return {}
        """,
    )
    (record,) = site.discover().records
    assert record.state == "broken"
    golden(capsys.readouterr().err, "plugin_misspelt_hook")


def test_a_hook_without_its_mark_is_named(site):
    site.plugin("plain", "def trinity_workflows():\n    return {}\n")
    (record,) = site.discover().records
    assert record.message == "'trinity_workflows' lacks @hookimpl, so it would never be called"


def test_a_hook_that_asks_for_an_unknown_argument_is_broken(site):
    site.plugin(
        "curious",
        """
        from trinity.extend import hookimpl

        @hookimpl
        def trinity_step_finished(weather):
            pass
        """,
    )
    (record,) = site.discover().records
    assert record.state == "broken"
    assert "weather" in record.trace
