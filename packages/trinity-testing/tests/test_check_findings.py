"""What `trinity plugins check` prints: one line for one cause, and why it looked no further."""

from __future__ import annotations

from trinity_testing.check import Result, Status
from trinity_testing.check_command import finding_rows, skip_lines, slow_lines


def a_result(id, component="workflow/shop", status=Status.ERROR, message="", **fields):
    return "shop", Result(id=id, component=component, status=status, message=message, **fields)


def test_checks_that_met_the_same_thing_in_one_part_are_one_row():
    broken = "raised KeyError: 'goal' at shop.py:7"
    results = [a_result(f"workflow.{n}", message=broken, remedy=f"Mend {n}.") for n in range(5)]

    assert finding_rows(results) == [
        (
            "shop",
            "ERROR",
            "workflow.0, workflow.1, workflow.2 and 2 more",
            "workflow/shop",
            "raised KeyError: 'goal' at shop.py:7. Mend 0.",
        )
    ]


def test_another_part_or_another_finding_is_a_row_of_its_own():
    rows = finding_rows(
        [
            a_result("a.b", message="one"),
            a_result("a.c", message="two"),
            a_result("a.b", component="workflow/other", message="one"),
            a_result("a.d", status=Status.PASS),
        ]
    )

    assert [(row[2], row[3], row[4]) for row in rows] == [
        ("a.b", "workflow/shop", "one."),
        ("a.c", "workflow/shop", "two."),
        ("a.b", "workflow/other", "one."),
    ]


def test_a_warning_is_said_to_be_one():
    ((*_, told),) = finding_rows(
        [a_result("a.b", status=Status.FAIL, message="x", severity="warning")]
    )

    assert told == "x. (a warning)"


def test_skipped_checks_are_told_with_their_reason():
    reason = "it uses no advantages"
    results = [
        a_result("policy_loss_fn.direction", f"policy_loss_fn/{name}", Status.SKIP, reason)
        for name in ("sft", "dpo")
    ]

    assert skip_lines(results) == [
        "skipped in shop: policy_loss_fn.direction of policy_loss_fn/sft, policy_loss_fn/dpo: "
        "it uses no advantages",
        "",
    ]
    assert skip_lines([a_result("a.b", status=Status.PASS)]) == []


def test_what_took_long_is_named_slowest_first():
    results = [a_result("a.b", seconds=6.2), a_result("a.c", seconds=31.0), a_result("a.d")]

    assert slow_lines(results) == ["slow: a.c[workflow/shop] 31 s, a.b[workflow/shop] 6 s", ""]
    assert slow_lines(results[2:]) == []
