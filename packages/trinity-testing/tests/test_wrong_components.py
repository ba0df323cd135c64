"""Each mistake is found, under the id that names it, and no other is reported."""

import pytest

BAD = {"FAIL", "ERROR"}


def ids_of(results, *, severity="error"):
    return {r.id for r in results if r.status in BAD and r.severity == severity}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claims_zero", {"advantage_fn.equal_rewards"}),
        ("claims_nothing", set()),
        ("reads_masked", {"advantage_fn.masked"}),
        ("teaches_masked", {"advantage_fn.shape_mask"}),
        ("groups_by_place", {"advantage_fn.permutation"}),
        ("divides_by_spread", {"advantage_fn.group_of_one"}),
        ("carries_gradient", {"advantage_fn.no_grad"}),
        ("hidden", {"component.picklable"}),
        ("wrong_base", {"component.subclass"}),
        ("missing", {"component.resolves"}),
    ],
)
def test_a_wrong_advantage_function_is_found(wrong_results, name, expected):
    assert ids_of(wrong_results(f"advantage_fn/{name}")) == expected


def test_a_claim_that_nobody_made_is_a_warning(wrong_results):
    results = wrong_results("advantage_fn/claims_nothing")

    assert ids_of(results, severity="warning") == {"advantage_fn.equal_rewards"}


def test_an_argument_without_default_is_asked_for_and_must_be_documented(wrong_results):
    results = {r.id: r for r in wrong_results("advantage_fn/needs_argument")}

    assert results["advantage_fn.shape_mask"].status == "SKIP"
    assert "args={'advantage_fn/needs_argument': {...}}" in results["advantage_fn.masked"].message
    assert "scale" in results["component.documented"].message


def test_an_argument_that_is_given_is_used(wrong_results):
    results = {
        r.id: r for r in wrong_results("advantage_fn/needs_argument", args={"scale": float("nan")})
    }

    assert results["advantage_fn.shape_mask"].message == "an advantage is not finite"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claims_zero", {"policy_loss_fn.zero_advantage"}),
        ("counts_padding", {"policy_loss_fn.padding"}),
        ("masks_too_late", {"policy_loss_fn.masked"}),
        ("is_a_vector", {"policy_loss_fn.scalar"}),
        ("overflows", {"policy_loss_fn.finite_grad"}),
        ("wrong_normalizer", {"policy_loss_fn.microbatches"}),
        ("metrics_are_tensors", {"policy_loss_fn.metrics_plain"}),
        ("right", set()),
    ],
)
def test_a_wrong_policy_loss_is_found(wrong_results, name, expected):
    assert ids_of(wrong_results(f"policy_loss_fn/{name}")) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nan_for_empty", {"reward_fn.finite"}),
        ("chokes_on_braces", {"reward_fn.finite"}),
        ("counts_calls", {"reward_fn.pure"}),
        ("grades_on_a_curve", {"reward_fn.batch_equals_single"}),
        ("returns_a_number", {"reward_fn.finite"}),
        ("takes_lists", set()),
    ],
)
def test_a_wrong_reward_function_is_found(wrong_results, name, expected):
    assert ids_of(wrong_results(f"reward_fn/{name}")) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("right", set()),
        ("right_async", set()),
        ("right_multi_turn", set()),
        ("renders_again", {"workflow.token_ids"}),
        ("tokenises_again", {"workflow.token_ids"}),
        ("makes_up_logprobs", {"workflow.token_ids"}),
        ("hides_failures", {"workflow.failure_typed"}),
        ("wraps_failures", {"workflow.failure_typed"}),
        ("remembers", {"workflow.reset"}),
        ("repeats_twice", {"workflow.repeats"}),
        ("shares_state", {"workflow.isolation"}),
        ("leaves_a_thread", {"workflow.cleanup"}),
        ("leaves_a_file", {"workflow.cleanup"}),
        ("rewards_nan", {"workflow.runs_scripted"}),
        ("changes_lengths", {"workflow.lengths"}),
    ],
)
def test_a_wrong_workflow_is_found(wrong_results, name, expected):
    found = ids_of(wrong_results(f"workflow/{name}"))

    assert expected <= found
    assert found <= expected | ALSO.get(name, set())


def test_a_workflow_that_draws_at_random_differs_from_run_to_run(wrong_results):
    assert "workflow.determinism" in ids_of(wrong_results("workflow/draws_at_random"))


def test_a_workflow_that_returns_nothing_does_not_run(wrong_results):
    assert "workflow.runs_scripted" in ids_of(wrong_results("workflow/returns_nothing"))


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


ALSO = {
    "changes_lengths": {"workflow.token_ids"},
}
