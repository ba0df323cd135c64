"""What an engine cannot answer is refused before it computes; what is given up ends."""

from __future__ import annotations

from concurrent.futures import CancelledError

import pytest
from trinity.common.generation import PendingReply, check_prompt, check_request
from trinity.common.ports import GenerationRequest
from trinity.errors import ModelError


@pytest.mark.parametrize("prompt", [(), range(10), (5, 99), (-1,)])
def test_a_prompt_that_cannot_be_continued_is_refused(prompt) -> None:
    with pytest.raises(ModelError, match=r"^the prompt (is empty|has 10 tokens|holds token)"):
        check_prompt(tuple(prompt), max_model_len=10, vocab=50)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("top_p", 0.0),
        ("top_p", float("nan")),
        ("top_k", -2),
        ("temperature", -1.0),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", float("nan")),
        ("logit_bias", ((10**6, 1.0),)),
        ("logit_bias", ((1, 101.0),)),
        ("stop", ("",)),
        ("stop", "a"),
        ("stop_token_ids", (50,)),
    ],
)
def test_a_setting_out_of_range_is_named(field, value) -> None:
    request = GenerationRequest(prompt_token_ids=(1,), **{field: value})

    with pytest.raises(ModelError, match=f"^{field} is "):
        check_request(request, max_model_len=10, vocab=50)


def test_a_reply_is_given_up_once_and_not_after_its_answer() -> None:
    told: list[str] = []
    waits = PendingReply[str](on_cancel=lambda: told.append("waits"))
    runs = PendingReply[str](on_cancel=lambda: told.append("runs"))
    runs.set_running_or_notify_cancel()
    done = PendingReply[str](on_cancel=lambda: told.append("done"))
    done.set_result("4")

    assert [waits.cancel(), runs.cancel(), done.cancel()] == [True, True, False]
    assert told == ["waits", "runs"]
    assert done.result() == "4"
    with pytest.raises(CancelledError):
        runs.result()
