"""Where a response says its answer, and what a judge's reply holds."""

from __future__ import annotations

import pytest
from trinity_compat_rft.answers import accuracy
from trinity_compat_rft.judging import listed_scores, rating


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("Half: \\boxed{\\frac{1}{2}}", "0.5", 1.0),
        ("The answer is 1,024.", "1024", 1.0),
        ("It looks as if the answer is 5.\nBut x is even, so the answer is 6.", "6", 1.0),
        ("Perhaps the answer is 5? No, the answer is 6.", "6", 1.0),
        ("Perhaps the answer is 5? No, the answer is 6.", "5", 0.0),
        ("The answer is 6. The answer is correct.", "6", 1.0),
        ("The answer is 6.\nI checked it, so the answer is correct.", "6", 1.0),
        ("The answer is \\frac{1}{2}.\nThe answer is correct.", "\\frac{1}{2}", 1.0),
        ("3 + 3 = 6, and the answer is correct.", "6", 1.0),
        ("The answer is x + y. No, the answer is x.", "x", 1.0),
        ("The answer is x + x.", "2x", 1.0),  # a number in a formula need not be in another
        ("The answer is x*x.", "x^2", 1.0),
        ("Of 4 signs the answer is e \\cdot e", "e^2", 1.0),
        ("The answer is x + x.", "3x", 0.0),
        ("The answer is 2x. The answer is correct.", "x + x + 0x", 1.0),
        ("The answer is xy + yx. The answer is correct.", "2xy", 1.0),
        ("Of 4 signs the answer is \\pi.", "3.141593", 1.0),
        ("3*6 = 18. The answer is x + x.", "18 km", 0.0),
        ("The answer is as follows.\n3*6 = 18", "18", 1.0),  # words are no answer to a number,
        ("The answer is as follows.\n3*6 = 18", "18 km", 1.0),  # whatever stands beside it
        ("The answer is as follows.\n3*6 = 18", "\\frac{36}{2}", 1.0),
        ("The answer is as follows.\n3*6 = 18", "18 \\text{ cm}", 1.0),
        ("The answer is in km:\n3*6 = 18", "18 km", 1.0),
        ("The answer is so:\n3*6 = 18", "18", 1.0),
        ("The answer is \\[\n18\n\\]", "18 km", 1.0),
        ("60 + 30 = 90, and the answer is correct.", "90^\\circ", 1.0),
        ("60 + 30 = 90, and the answer is correct.", "80^\\circ", 0.0),
        ("The answer is Paris, by 2 votes.\nThe answer is Rome.", "Rome", 1.0),
        ("The answer is abcd + abcd.", "2abcd", 1.0),  # nothing else is there to take
        ("12 apples and 30 pears make 42", "#### 42", 1.0),
        ("\\boxed{42}", "12 + 30 = 42\n#### 42", 1.0),
        ("\\boxed{3.14159}", "3.1416", 1.0),  # off by 8e-7 of its size
        ("\\boxed{3.14}", "3.1416", 0.0),
        ("\\boxed{25}", "0.25", 1.0),  # a percentage
        ("\\boxed{2}", "\\frac{1}{2}", 0.0),
        ("\\boxed{(1, 2)}", "(1,2)", 1.0),
        ("I do not know.", "42", 0.0),
        ("", "42", 0.0),
    ],
)
def test_the_answer_is_found_and_compared(response, truth, expected) -> None:
    assert accuracy(response, truth=truth) == expected


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ("[1] looks right. [0.9, 0.1]", [0.9, 0.1]),
        ("[2, -1]", [1.0, 0.0]),
        ("[0.5]", None),
        ("[0.5, 'good']", None),
        ("] [", None),
        ("[" * 5000 + "]" * 5000, None),
        ("", None),
    ],
)
def test_scores_are_the_last_list_of_a_reply(reply, scores) -> None:
    assert listed_scores(reply, num=2) == scores


@pytest.mark.parametrize(
    ("reply", "mark"),
    [
        ('```json\n{"rating": 7}\n```', 0.7),
        ('```{"rating": 10}``` because', 1.0),
        ('```json\n{"rating": 0}\n```', None),
        ('```json\n{"rating": "7"}\n```', None),
        ("```json\n[7]\n```", None),
        ('{"rating": 7}', None),
        ("```json", None),
    ],
)
def test_a_rating_stands_in_a_block_of_json(reply, mark) -> None:
    assert rating(reply) == mark


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("\\dfrac12", "\\frac{1}{2}"),
        ("\\tfrac{1}2", "\\frac{1}{2}"),
        ("3/4", "\\frac{3}{4}"),
        ("a/b", "a/b"),
        ("5\\text{ cm}", "5"),
        ("12 square feet", "12"),
        ("x = 5.00", "5"),
        ("50\\%", "50"),
        ("\\$1.50", "1.50"),
        (".5", "0.5"),
        ("\\sqrt3", "\\sqrt{3}"),
        ("\\left( 1, 2 \\right)", "1,2"),
        ("90^\\circ", "90"),
        ("x \\leq 3", "x\\le3"),
        ("-\\infty", "-\\infty"),
        ("infinity", "\\infty"),
        ("$", None),
        (None, None),
    ],
)
def test_answers_that_are_written_alike_have_one_plain_form(written, plain) -> None:
    from trinity.common.rewards.qwen25_eval import strip_string

    assert strip_string(written) == plain
