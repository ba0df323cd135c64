"""000: batches of another size than a step, priorities, an explorer that decides when to sync."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trinity.algorithm.advantage_fn.step_wise_grpo import StepWiseGRPOAdvantageFn
from trinity.common.batch import ExperienceBatch
from trinity.common.config import ExperienceBufferConfig
from trinity_algorithms.replay.priority import LinearDecay
from trinity_algorithms.replay.storage import ReplayStorage
from trinity_testing.builders import an_experience


@pytest.fixture
def ten_a_step(config_dict):
    """Return a configuration with ten experiences a step, for batches of 16, over four steps."""
    config_dict["algorithm"]["repeat_times"] = 5
    config_dict["buffer"] |= {"batch_size": 2, "train_batch_size": 16, "total_steps": 4}
    config_dict["synchronizer"] = {"sync_style": "dynamic_by_explorer", "sync_interval": 1}
    return config_dict


def sizes_and_syncs(result, logged):
    sizes = [row["perf/num_samples"] for row in logged(result, "trainer")]
    return sizes, [row["step"] for row in logged(result, "synchronizer")]


@pytest.mark.slow
def test_P012_and_P014_a_trainer_takes_whole_batches_and_the_explorer_what_is_newer(
    ten_a_step, run_it, logged, rolled_out
) -> None:
    result = run_it()

    sizes, syncs = sizes_and_syncs(result, logged)
    assert sizes == [16.0, 16.0, 8.0]  # at 16 and at 32; the rest at the end, so nothing is lost
    assert syncs == [2, 4, 4]  # it asks after each step, and takes only a newer version
    versions = {row["eid"]["batch"]: row["info"]["model_version"] for row in rolled_out(result)}
    assert versions == {1: 0, 2: 0, 3: 1, 4: 1}


@pytest.mark.slow
def test_P012_with_fixed_the_same_run_trains_short_batches(ten_a_step, run_it, logged) -> None:
    ten_a_step["synchronizer"] = {"sync_style": "fixed", "sync_interval": 2}

    assert sizes_and_syncs(run_it(), logged) == ([16.0, 4.0, 16.0, 4.0], [2, 4])


def test_P013_new_experiences_come_first_by_default() -> None:
    buffer = a_replay_buffer({"enable": True})
    for version in (1, 3, 2):
        buffer.write([an_experience(batch=version, info={"model_version": version})])

    assert first_of(buffer).info["model_version"] == 3


def test_P022_decay_decides_between_a_used_new_experience_and_an_older_fresh_one() -> None:
    firsts = []
    for decay in (2.0, 0.1):
        args = {"priority_fn": "linear_decay", "priority_fn_args": {"decay": decay}}
        buffer = a_replay_buffer({"enable": True, "reuse_cooldown_time": 0.0, **args})
        buffer.write([an_experience(batch=2, info={"model_version": 2})])
        first_of(buffer)  # priority 2 - decay from now on
        buffer.write([an_experience(batch=1, info={"model_version": 1})])
        firsts.append(first_of(buffer).eid.batch)

    assert firsts == [1, 2]


def a_replay_buffer(replay):
    config = ExperienceBufferConfig(replay_buffer=replay)
    priority_fn = LinearDecay(**config.replay_buffer.priority_fn_args)
    return ReplayStorage(config, priority_fn=priority_fn)


def first_of(buffer):
    return buffer.read(1, timeout_s=0)[0]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, ""),
        ({"priority_fn_args": {"decai": 0.1}}, "no argument 'decai'. Did you mean 'decay'?"),
        ({"priority_fn": "linear_deca"}, "no priority_fn named 'linear_deca'."),
    ],
)
def test_P022_config_check_accepts_a_replay_buffer_and_names_what_is_wrong_with_one(
    config_dict, write_yaml, trinity, settings, complaint
) -> None:
    replay = {"enable": True, "priority_fn": "linear_decay", **settings}
    section = {"name": "b", "storage_type": "queue", "replay_buffer": replay}
    config_dict["buffer"]["trainer_input"] = {"experience_buffer": section}

    checked = trinity("config", "check", write_yaml(config_dict))

    assert (checked.code, complaint in checked.stdout) == (1 if complaint else 0, True)


@pytest.mark.slow
def test_P022_a_run_fills_its_batches_up_from_the_replay_buffer_and_says_so(
    ten_a_step, write_yaml, trinity
) -> None:
    replay = {"enable": True, "reuse_cooldown_time": 0.0}
    ten_a_step["buffer"]["trainer_input"] = {"experience_buffer": {"replay_buffer": replay}}

    ended = trinity("run", "--local", "--config", write_yaml(ten_a_step))

    # of 20 first 16, then the other 4 and 12 again; twice 10 and 6 again
    assert ended.code == 0, ended.stderr
    assert "  replay buffer: 40 experiences, 64 uses, 24 of them reuses\n" in ended.stdout


RUN = st.tuples(st.integers(1, 5), st.floats(-1, 1, width=32))  # steps, reward
GROUPS = st.lists(st.lists(RUN, min_size=2, max_size=4), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(groups=GROUPS)
def test_P116_ragged_runs_of_a_group_count_once_each_and_nothing_is_padded(groups) -> None:
    rows = [
        an_experience(reward=reward, task=task, run=run, step=step, response=[3] * (1 + step))
        for task, group in enumerate(groups)
        for run, (num_steps, reward) in enumerate(group)
        for step in range(num_steps)
    ]

    batch, _ = StepWiseGRPOAdvantageFn()(ExperienceBatch.from_experiences(rows))
    got = {experience.eid.uid: experience.advantages for experience in batch.write_back()}

    assert got.keys() == {row.eid.uid for row in rows}
    for task, group in enumerate(groups):
        rewards = torch.tensor([reward for _, reward in group], dtype=torch.float64)
        scores = ((rewards - rewards.mean()) / (rewards.std() + 1e-6)).float()
        for run, (num_steps, _) in enumerate(group):
            for step in range(num_steps):
                advantages = got[f"0/{task}/{run}/{step}"]
                assert advantages.shape == (1 + step,)
                assert torch.allclose(advantages, scores[run].expand(1 + step), atol=1e-3)
