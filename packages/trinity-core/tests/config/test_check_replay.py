"""A replay buffer and a dynamic style are refused where nothing could come of them."""

from __future__ import annotations

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.common.config.arithmetic import arithmetic
from trinity.common.config.problem import listed

BUFFER = "buffer.trainer_input.experience_buffer"
ENABLE = f"{BUFFER}.replay_buffer.enable=true"


@pytest.fixture
def resolved(cpu, all_algorithms, a_run):
    return lambda *overrides: resolve(load_config(a_run(), overrides=overrides), cpu)


@pytest.fixture
def checked(cpu, resolved):
    """Return a function that gives what is wrong with a run of these settings."""
    return lambda *overrides: "\n".join(listed(check(resolved(*overrides), cpu)))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ([ENABLE], ""),
        ([ENABLE, f"{BUFFER}.replay_buffer.priority_fn=decay_limit_randomization"], ""),
        (
            [ENABLE, f"{BUFFER}.storage_type=file", f"{BUFFER}.path=x.jsonl"],
            "is true, but a replay buffer needs storage_type queue, and it is file. Leave it out.",
        ),
        (
            [ENABLE, "mode=explore"],
            "is true, but mode explore has no queue between explorer and trainer.",
        ),
        (
            [
                "buffer.trainer_input.auxiliary_buffers.other={storage_type: file, path: x.jsonl,"
                " replay_buffer: {enable: true}}"
            ],
            f"is true, but only {BUFFER} may have a replay buffer.",
        ),
        (
            [ENABLE, f"{BUFFER}.replay_buffer.priority_fn=decay_limit_randomization",
             f"{BUFFER}.replay_buffer.priority_fn_args.sigma=-1"],
            "priority_fn_args: sigma is -1; it must be 0 or above.",
        ),
        (
            [ENABLE, f"{BUFFER}.capacity=1", "synchronizer.sync_interval=2"],
            "the explorer runs 2 steps before the trainer reads (sync_interval + sync_offset): "
            "experiences would be evicted before they are trained. Use 2 or more.",
        ),
        (
            [f"{BUFFER}.capacity=3", "synchronizer.sync_style=dynamic_by_explorer",
             "synchronizer.sync_interval=2", "buffer.train_batch_size=24"],
            # 8 experiences a step: up to 2 steps wait for a whole batch, and 2 more for the sync
            "is 3 batches, but the explorer runs 4 steps before the trainer reads",
        ),
        (
            ["synchronizer.sync_style=dynamic_by_trainer", "synchronizer.sync_offset=1"],
            "synchronizer.sync_offset: is ignored with sync_style trainer_driven; only sync_style",
        ),
    ],
)  # fmt: skip
def test_what_a_replay_buffer_or_a_style_needs(checked, settings, complaint) -> None:
    told = checked(*settings)

    assert complaint in told
    assert "replay_buffer" not in told or complaint


def test_the_file_of_a_training_run_can_be_evaluated_as_it_is(cpu, resolved) -> None:
    problems = check(resolved(ENABLE, "mode=bench"), cpu)

    assert {p.severity for p in problems if "replay_buffer" in p.path} == {"notice"}


def test_a_negative_cooldown_is_refused(a_run) -> None:
    from trinity.errors import ConfigError

    with pytest.raises(ConfigError, match="reuse_cooldown_time"):
        load_config(a_run(), overrides=[f"{BUFFER}.replay_buffer.reuse_cooldown_time=-1"])


def test_another_priority_function_does_not_get_the_arguments_of_linear_decay(resolved) -> None:
    replay = f"{BUFFER}.replay_buffer"
    config = resolved(ENABLE, f"{replay}.priority_fn=decay_limit_randomization")

    assert config.buffer.trainer_input.experience_buffer.replay_buffer.priority_fn_args == {}


@pytest.mark.parametrize(
    ("style", "said"),
    [
        ("dynamic_by_explorer", "weight sync every 2 explore steps"),
        ("dynamic_by_trainer", "weight sync every train step"),
    ],
)
def test_check_says_who_decides_about_weights(resolved, style, said) -> None:
    config = resolved(f"synchronizer.sync_style={style}", "synchronizer.explorer_sync_interval=2")

    assert f"{said} (memory)" in arithmetic(config)
