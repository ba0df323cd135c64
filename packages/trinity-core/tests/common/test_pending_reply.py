"""A reply that was answered or given up stays as it is."""

import pytest
from trinity.common.generation import PendingReply
from trinity.common.generation.requests import begins, fail
from trinity.errors import ModelError


@pytest.fixture
def reply():
    """Return a function that makes the future of a request."""
    return lambda: PendingReply(on_cancel=lambda: None)


def test_what_was_answered_or_given_up_is_not_begun_and_not_answered_again(reply) -> None:
    answered, given_up, waiting = reply(), reply(), reply()
    answered.set_result([])
    given_up.cancel()
    assert [begins(future) for future in (answered, given_up, waiting)] == [False, False, True]
    for future in (answered, given_up, waiting):
        fail(future, ModelError("closed"))
    assert answered.result(0) == []
    assert given_up.cancelled()
    with pytest.raises(ModelError, match="closed"):
        waiting.result(0)
