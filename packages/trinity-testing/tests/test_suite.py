"""A plugin's whole test file: ``test_plugin = conformance.suite("name")``."""

import textwrap

import pytest
from trinity.errors import UnknownComponentError
from trinity_testing import conformance
from trinity_testing.planning import run_checks

PLUGIN = """
from trinity.extend import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_reward_fns():
    return {"length": "length_reward:LengthReward", "moody": "length_reward:MoodyReward"}
"""
REWARD = '''
from trinity.common.rewards import RewardFn


class LengthReward(RewardFn):
    """The length, times a factor."""

    def __init__(self, factor=1.0):
        self.factor = factor

    def __call__(self, response, **kwargs):
        return {"length": self.factor * len(response)}


class MoodyReward(RewardFn):
    """Another value each time."""

    count = 0

    def __call__(self, **kwargs):
        MoodyReward.count += 1
        return {"mood": float(MoodyReward.count)}
'''


@pytest.fixture
def plugin(throwaway_plugin):
    return throwaway_plugin("length", {"length_plugin.py": PLUGIN, "length_reward.py": REWARD})


@pytest.fixture
def run_suite(plugin, tmp_path, monkeypatch):
    """Return a function that runs a suite in pytest and returns what became of each check."""

    def run(**options):
        seen = {}

        class Recorder:
            def pytest_runtest_logreport(self, report):
                if report.when == "call" or report.outcome == "skipped":
                    name = report.nodeid.partition("[")[2][:-1]
                    seen[name] = "xfailed" if hasattr(report, "wasxfail") else report.outcome

        file = tmp_path / f"test_{tmp_path.name}.py"  # pytest imports a module once
        call = ", ".join(["'length'", *(f"{name}={value!r}" for name, value in options.items())])
        file.write_text(
            textwrap.dedent(f"""
            from trinity_testing import conformance

            test_plugin = conformance.suite({call})
            """)
        )
        arguments = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:warnings",
            f"--rootdir={tmp_path}",
            "-c",
        ]
        pytest.main(
            [*arguments, "/dev/null", "--import-mode=importlib", str(file)], plugins=[Recorder()]
        )
        return seen

    return run


def test_a_suite_has_a_test_for_each_check_of_each_component(run_suite):
    seen = run_suite()

    assert seen["reward_fn.pure[reward_fn/length]"] == "passed"
    assert seen["reward_fn.pure[reward_fn/moody]"] == "failed"
    assert seen["reward_fn.batch_equals_single[reward_fn/length]"] == "skipped"
    assert seen["static.requires_core"] == "passed"
    assert seen["import.no_heavy"] == "passed"


@pytest.mark.acceptance
def test_a_known_failure_with_a_reason_does_not_fail(run_suite):
    seen = run_suite(expected_failures={"reward_fn.pure[reward_fn/moody]": "it is moody"})

    assert seen["reward_fn.pure[reward_fn/moody]"] == "xfailed"
    assert "failed" not in seen.values()


@pytest.mark.acceptance
def test_a_warning_does_not_fail(run_suite):
    assert run_suite()["component.documented[reward_fn/length]"] == "passed"


def test_a_check_that_passes_unexpectedly_fails(plugin):
    expected = {"reward_fn.finite[reward_fn/length]": "outdated"}

    results = run_checks("length", plugin, expected_failures=expected)

    (result,) = [r for r in results if r.status == "XPASS"]
    assert result.is_bad
    assert (result.component, result.remedy) == (
        "reward_fn/length",
        "Remove 'reward_fn.finite' from expected_failures.",
    )


def test_each_set_of_arguments_is_tested(plugin):
    args = {"reward_fn/length": [{}, {"factor": float("inf")}]}

    results = run_checks("length", plugin, ids=["reward_fn.finite"], args=args)

    assert {r.component: str(r.status) for r in results} == {
        "reward_fn/length": "PASS",
        "reward_fn/length#2": "FAIL",
        "reward_fn/moody": "PASS",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ids": ["reward_fn.fintie"]}, "Did you mean 'reward_fn.finite'"),
        ({"args": {"reward_fn/lenght": {}}}, "Did you mean 'reward_fn/length'"),
        ({"expected_failures": {"reward_fn.pur": "why"}}, "Did you mean 'reward_fn.pure'"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(plugin, options, message):
    with pytest.raises(UnknownComponentError, match=message):
        conformance.suite("length", **options)


def test_a_plugin_that_is_not_installed_is_refused_with_those_that_are(plugin):
    with pytest.raises(UnknownComponentError, match=r"Did you mean 'length'\? Known: .*builtin,"):
        conformance.suite("lenth")


def test_an_expected_failure_without_a_reason_is_refused(plugin):
    with pytest.raises(ValueError, match="needs a reason"):
        conformance.suite("length", expected_failures={"reward_fn.pure": " "})


def test_the_kit_is_no_pytest_plugin():
    from importlib import metadata

    entry_points = metadata.distribution("trinity-testing").entry_points

    assert [e.group for e in entry_points] == ["trinity.plugins"]


def test_no_discovery_knows_the_cores_own_parts_alone(no_discovery):
    from trinity.extend import get_manager

    assert get_manager() is no_discovery
    assert [record.name for record in no_discovery.records] == ["builtin"]


def test_a_throwaway_plugin_is_gone_after_its_test(plugin):
    assert "length" in plugin.names("reward_fn")


def test_a_throwaway_plugin_of_another_test_is_not_installed():
    from trinity.extend import get_manager

    assert "length" not in get_manager().names("reward_fn")


def test_checks_are_found_where_they_were_published():
    from trinity.extend.conformance import checks

    assert checks.Check is conformance.Check
    assert checks.run_checks is conformance.run_checks
