"""What a run holds of a chat that goes on: each message and each token once."""

from __future__ import annotations

from trinity.common.models.turn import Turn


def test_a_turn_shares_the_messages_that_are_spelled_alike() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1, "b": 2}}}
    before = Turn(messages=({"role": "user", "content": "Hi"}, {"role": "x", "calls": [call]}))
    turn = Turn(
        messages=(
            {"role": "user", "content": "Hi"},
            {"role": "x", "calls": [{"function": {"name": "f", "arguments": {"b": 2, "a": 1}}}]},
            {"role": "user", "content": "Go on"},
        )
    )

    shared = turn.sharing(before)

    assert shared == turn
    assert shared.messages[0] is before.messages[0]
    assert shared.messages[1] is turn.messages[1]  # the order of arguments is rendered
    assert Turn(messages=({"n": 2},)).sharing(Turn(messages=({"n": 2.0},))).messages == ({"n": 2},)
    assert str(Turn(messages=({"n": 2},)).sharing(Turn(messages=({"n": 2.0},))).messages[0]) == (
        "{'n': 2}"
    )
