"""Each mistake is found, under the id that names it, and no other is reported."""

from fnmatch import fnmatch

import pytest
from trinity.extend import get_manager
from trinity_testing.planning import collect_checks
from wrong_catalogue import PLUGINS, WRONG, mistake_of

BAD = {"FAIL", "ERROR"}
SLOW = ("rollout_engine/", "trainer/", "algorithm/")  # the checks of a model: a second each
SLOW += ("storage/has_no_lock", "workflow/never_returns", "sample_strategy/reads_for_ever")  # waits
RAY = [wrong for wrong in WRONG if wrong.check.startswith("ray.")]
QUICK = [wrong for wrong in WRONG if not wrong.subject.startswith(SLOW)]
FIRST = {wrong.check: wrong for wrong in reversed(QUICK)}  # of the mistakes that a check catches
IN_THIS_PROCESS = [
    pytest.param(wrong, marks=pytest.mark.acceptance)
    if wrong is not FIRST.get(wrong.check)
    else wrong
    for wrong in WRONG
    if wrong not in RAY
]


def ids_of(results):
    return {r.id for r in results if r.status in BAD}


@pytest.mark.parametrize("wrong", IN_THIS_PROCESS, ids=lambda w: f"{w.check}-{w.subject}")
def test_a_mistake_is_caught_by_the_check_made_for_it_and_by_no_other(
    wrong, wrong_results, plugin_results, monkeypatch
):
    monkeypatch.setenv("KIT", "0")  # one of the plugins sets it while it is imported
    if wrong.subject in PLUGINS:
        results = plugin_results(wrong.subject, ids=("static", "import"))
    else:
        results = wrong_results(wrong.subject, limit_s=wrong.limit_s)

    found = ids_of(results)

    assert wrong.check in found
    assert [
        id for id in found - {wrong.check} if not any(fnmatch(id, also) for also in wrong.also)
    ] == []


@pytest.mark.ray
@pytest.mark.acceptance
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("wrong", RAY, ids=lambda w: f"{w.check}-{w.subject}")
def test_a_mistake_that_only_a_worker_shows_is_caught_there(wrong, wrong_results, plugin_results):
    run = plugin_results if wrong.subject in PLUGINS else wrong_results

    assert ids_of(run(wrong.subject, ids=("ray",))) == {wrong.check}


def test_no_check_is_without_a_mistake_that_it_catches():
    checks = {check.id for check in collect_checks(get_manager())}

    assert {wrong.check for wrong in WRONG} == checks


def test_the_catalogue_says_of_each_mistake_what_it_is():
    assert all(len(mistake_of(wrong)) > 10 for wrong in WRONG)


@pytest.mark.parametrize(
    "key",
    [
        "advantage_fn/claims_nothing",
        "algorithm/right",
        "algorithm/says_what_it_needs",
        "policy_loss_fn/right",
        "reward_fn/takes_lists",
        "monitor/right",
        "rollout_engine/right",
        "sample_strategy/right",
        "storage/right",
        "storage/gives_the_best",
        "sync_method/right",
        "trainer/right",
        "workflow/right",
        "workflow/right_async",
        "workflow/right_multi_turn",
    ],
)
def test_what_is_right_has_no_finding(wrong_results, key):
    assert ids_of(wrong_results(key)) == set()


def test_a_property_that_nobody_claimed_is_not_asked_for(wrong_results):
    results = {r.id: r for r in wrong_results("advantage_fn/claims_nothing")}

    assert results["advantage_fn.equal_rewards"].status == "SKIP"
    assert "does not claim" in results["advantage_fn.equal_rewards"].message


def test_an_order_that_a_storage_claims_is_told_and_not_asked_for(wrong_results):
    results = {r.id: r for r in wrong_results("storage/gives_the_best")}

    assert results["storage.order"].status == "SKIP"
    assert "own_order: the highest reward first" in results["storage.order"].message
    assert results["storage.state"].status == "PASS"


def test_an_algorithm_that_lacks_a_part_is_skipped_with_the_reason(wrong_results):
    results = {r.id: r for r in wrong_results("algorithm/says_what_it_needs")}

    assert results["algorithm.needs"].status == "PASS"
    assert results["algorithm.learns"].status == "SKIP"
    assert "needs 'teacher_logprob'" in results["algorithm.learns"].message


def test_what_was_learnt_is_told_by_the_result(wrong_results):
    results = {r.id: r for r in wrong_results("algorithm/right")}

    assert results["algorithm.learns"].message.startswith("reward 0.")


def test_an_argument_without_default_is_asked_for_and_must_be_documented(wrong_results):
    results = {r.id: r for r in wrong_results("advantage_fn/needs_argument")}

    assert results["advantage_fn.shape_mask"].status == "SKIP"
    assert "args={'advantage_fn/needs_argument': {...}}" in results["advantage_fn.masked"].message
    assert "scale" in results["component.documented"].message


def test_an_argument_that_is_given_is_used(wrong_results):
    results = {
        r.id: r for r in wrong_results("advantage_fn/needs_argument", args={"scale": float("nan")})
    }

    assert "NeedsArgument" in results["advantage_fn.shape_mask"].message
    assert "made advantages that are NaN or infinite" in results["advantage_fn.shape_mask"].message


def test_a_finding_says_what_where_and_what_to_do(wrong_results, golden):
    wrong = [
        "advantage_fn/hidden",
        "advantage_fn/missing",
        "advantage_fn/reads_masked",
        "policy_loss_fn/counts_padding",
        "reward_fn/nan_for_empty",
        "workflow/hides_failures",
        "workflow/tokenises_again",
    ]
    findings = [r for key in wrong for r in wrong_results(key) if r.is_bad]

    lines = [f"{r.status} {r.id} {r.component}: {r.message}\n  {r.remedy}" for r in findings]

    golden("\n".join(lines), "conformance_findings")
