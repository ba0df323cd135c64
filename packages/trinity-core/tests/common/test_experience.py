"""The nouns that travel between the rooms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import EID, Experience


def an_experience(*, reward=0.0, task=0, run=0, response=(7, 8), **fields):
    return Experience(
        tokens=[1, 2, *response],
        prompt_length=2,
        reward=reward,
        eid=EID(batch=1, task=task, run=run),
        **fields,
    )


def test_the_ids_of_an_experience_name_its_step_run_and_task() -> None:
    eid = EID(batch=1, task=2, run=3, step=4, suffix="abc123")

    assert (eid.uid, eid.sid, eid.rid, eid.tid) == ("1/2/3/4/abc123", "1/2/4", "1/2/3", "1/2")


def test_lists_become_tensors_of_the_documented_types() -> None:
    experience = an_experience(logprobs=[-0.5, -1.0], action_mask=[1, 0])

    assert experience.tokens.dtype == torch.int64
    assert experience.logprobs.dtype == torch.float32
    assert experience.action_mask.tolist() == [True, False]
    assert experience.response_length == 2


def test_a_field_of_another_length_than_the_response_is_refused() -> None:
    with pytest.raises(ValueError, match=r"logprobs has 3 entries, but the response has 2 tokens"):
        an_experience(logprobs=[0.0, 0.0, 0.0])


@pytest.mark.parametrize("length", [0, 5])
def test_a_prompt_length_outside_the_tokens_is_refused(length) -> None:
    with pytest.raises(ValueError, match="prompt_length is"):
        Experience(tokens=[1, 2, 3, 4], prompt_length=length)


def test_a_response_is_the_models_own_until_somebody_masks_it() -> None:
    cut = an_experience(truncate_status="prompt_truncated")
    pair = Experience(tokens=[1, 2], prompt_length=2, chosen=[3], rejected=[4])

    assert an_experience().action_mask.tolist() == [True, True]
    assert cut.action_mask.tolist() == [False, False]
    assert pair.action_mask is None


@pytest.mark.parametrize("mask", [torch.tensor([True, True]), np.array([True, True])])
def test_two_experiences_never_share_a_mask(mask) -> None:
    first, second = an_experience(action_mask=mask), an_experience(action_mask=mask)
    copy = replace(first, reward=1.0)

    first.action_mask.zero_()

    assert second.action_mask.all()
    assert copy.action_mask.all()


def test_other_tokens_need_their_own_mask_and_the_error_says_how() -> None:
    first = an_experience()  # a response of two tokens
    longer = torch.cat([first.tokens, torch.tensor([7])])

    with pytest.raises(ValueError, match=r"with other tokens: .* action_mask=None") as raised:
        replace(first, tokens=longer)

    assert "action_mask has 2 entries, but the response has 3 tokens" in str(raised.value)
    assert replace(first, tokens=longer, action_mask=None, logprobs=None).action_mask.all()


def test_a_status_that_is_set_afterwards_is_a_label_and_leaves_the_mask() -> None:
    turns = an_experience(action_mask=[True, False])

    turns.truncate_status = "prompt_truncated"  # what was said before the cut may be trained on
    turns.__post_init__()

    assert turns.action_mask.tolist() == [True, False]


def test_an_experience_survives_its_dictionary() -> None:
    before = an_experience(
        reward=0.25, logprobs=[-0.5, -1.0], action_mask=[True, False], info={"model_version": 3}
    )

    after = Experience.from_dict(before.to_dict())

    assert after.eid == before.eid
    assert after.tokens.tolist() == before.tokens.tolist()
    assert after.logprobs.tolist() == before.logprobs.tolist()
    assert after.info == {"model_version": 3}


def test_what_a_workflow_notes_in_info_can_be_written_whatever_it_is() -> None:
    noted = {
        "seen": np.int64(3),
        "where": [np.arange(2), torch.ones(1)],
        "by": {7: EID(task=1)},
        "world": Path("a/b"),
    }

    row = json.loads(json.dumps(an_experience(info=noted).to_dict()))

    assert (row["info"]["seen"], row["info"]["where"]) == (3, [[0, 1], [1.0]])
    assert row["info"]["by"]["7"]["task"] == 1
    assert row["info"]["world"] == "a/b"


def test_a_batch_pads_responses_on_the_right() -> None:
    batch = ExperienceBatch.from_experiences(
        [an_experience(response=(7, 8, 9)), an_experience(response=(5,))], pad_token_id=0
    )

    assert batch["responses"].tolist() == [[7, 8, 9], [5, 0, 0]]
    assert batch["action_mask"].tolist() == [[True] * 3, [True, False, False]]


def test_a_batch_knows_verls_names_for_its_fields() -> None:
    batch = ExperienceBatch.from_experiences([an_experience(logprobs=[-1.0, -2.0])])

    assert batch["old_log_probs"] is batch["old_logprob"]
    assert batch.batch["response_mask"] is batch["action_mask"]
    assert batch.non_tensor_batch["uid"] == ["1/0"]


def test_the_reward_stands_at_the_last_token_that_the_model_chose() -> None:
    experience = an_experience(reward=0.5, response=(7, 8, 9), action_mask=[1, 1, 0])

    batch = ExperienceBatch.from_experiences([experience])

    assert batch["token_level_rewards"].tolist() == [[0.0, 0.5, 0.0]]


def test_an_unknown_field_is_answered_with_the_known_ones() -> None:
    batch = ExperienceBatch.from_experiences([an_experience()])

    with pytest.raises(KeyError, match="no field named 'advantage'"):
        batch["advantage"]


def test_rows_of_one_task_are_a_group_in_first_seen_order() -> None:
    rows = [an_experience(task=1), an_experience(task=0), an_experience(task=1, run=1)]

    assert ExperienceBatch.from_experiences(rows).groups() == {"1/1": [0, 2], "1/0": [1]}


def test_written_advantages_come_back_without_padding() -> None:
    rows = [an_experience(response=(7, 8, 9)), an_experience(response=(5,))]
    batch = ExperienceBatch.from_experiences(rows)

    batch["advantages"] = torch.tensor([[1.0, 1.0, 1.0], [2.0, 9.0, 9.0]])

    assert [row.advantages.tolist() for row in batch.write_back()] == [[1.0, 1.0, 1.0], [2.0]]


def test_logprobs_that_only_some_rows_have_are_refused() -> None:
    rows = [an_experience(logprobs=[-1.0, -1.0]), an_experience()]

    with pytest.raises(ValueError, match="1 of 2 experiences have no logprobs"):
        ExperienceBatch.from_experiences(rows)


def test_rows_without_a_response_are_a_batch_of_no_columns() -> None:
    batch = ExperienceBatch.from_experiences(
        [an_experience(response=()), an_experience(response=())]
    )

    assert batch["token_level_rewards"].shape == (2, 0)
    assert batch["action_mask"].shape == (2, 0)


def test_rewards_per_token_stand_where_the_experience_has_them() -> None:
    rows = [
        an_experience(response=(7, 8), token_level_reward=[0.25, 0.5], reward=9.0),
        an_experience(response=(5, 6, 7), reward=1.0),
    ]

    batch = ExperienceBatch.from_experiences(rows)

    assert batch["token_level_rewards"].tolist() == [[0.25, 0.5, 0.0], [0.0, 0.0, 1.0]]
