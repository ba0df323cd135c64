"""Tokens that the model does not have are refused before it looks them up."""

from __future__ import annotations

import pytest
from trinity.errors import DataError
from trinity.trainer.known_tokens import check_token_ids
from trinity_testing.builders import an_experience


@pytest.mark.parametrize(("token", "what"), [(64, "64"), (-100, "-100")])
def test_a_row_with_an_unknown_token_is_named(token, what):
    rows = [an_experience(), an_experience(response=[3, token], run=1)]

    with pytest.raises(DataError) as caught:
        check_token_ids(rows, num_known=64)

    assert str(caught.value).startswith(
        f"experience 0/0/1/0 holds the token {what}, and the model knows tokens 0 to 63. Return"
    )


def test_the_first_and_the_last_token_are_known():
    check_token_ids([an_experience(response=[0, 63])], num_known=64)


def test_a_training_step_refuses_them(a_trainer, an_experience):
    row = an_experience(0, reward=1.0)
    row.tokens[-1] = 10**6
    trainer = a_trainer()

    with pytest.raises(DataError, match="holds the token 1000000"):
        trainer.train_step([row], step=1)
