"""What a verifier may write, and what comes of it."""

from __future__ import annotations

import os

import pytest
from trinity.errors import BadTaskError, EnvError
from trinity_envs_harbor.rewards import chosen

from .conftest import call, needs_bwrap, read_rewards

FILL = "i=0; while i=$((i+1)); do head -c 4000000 /dev/zero > /app/f$i; done"


def written(tmp_path, **files):
    folder = tmp_path / "logs" / "verifier"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "rewards"),
    [
        ({"reward_txt": "1"}, {"reward": 1.0}),
        ({"reward_txt": " 0.25\n"}, {"reward": 0.25}),
        ({"reward_txt": "-2"}, {"reward": -2.0}),
        ({"reward_json": '{"reward": 1, "speed": 0.5}'}, {"reward": 1.0, "speed": 0.5}),
        (
            {"reward_json": '{"a": 1, "b": 2}', "reward_txt": "3"},
            {"a": 1.0, "b": 2.0, "reward": 3.0},
        ),
    ],
)
def test_finite_numbers_are_rewards(tmp_path, files, rewards):
    assert read_rewards(written(tmp_path, **files)) == rewards


@pytest.mark.parametrize(
    ("as_json", "as_text", "rewards"),
    [
        ('{"reward": 1}', "0", {"reward": 0.0}),
        ('{"reward": 0, "speed": 2}', "1", {"reward": 0.0, "speed": 2.0}),
        ('{"x": 1}', "0", {"x": 1.0, "reward": 0.0}),
        ('{"reward": 0.5}', "0.5", {"reward": 0.5}),
    ],
)
def test_the_lower_reward_of_two_files_counts_and_the_difference_is_told(
    tmp_path, as_json, as_text, rewards, caplog
):
    found = read_rewards(written(tmp_path, reward_json=as_json, reward_txt=as_text))

    assert found == rewards
    assert chosen(found) == rewards["reward"]
    assert ("the lower one counts" in caplog.text) == ("0.5" not in as_text)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"reward_json": "[", "reward_txt": "1"}, "reward.json is no JSON"),
        ({"reward_json": '{"reward": 1}', "reward_txt": "x"}, "reward.txt is 'x'"),
        ({"reward_json": '{"a": 1}', "reward_txt": ""}, "reward.txt is empty"),
    ],
)
def test_of_two_files_one_that_cannot_be_read_is_0_and_no_way_to_a_failed_rollout(
    tmp_path, caplog, files, told
) -> None:
    assert chosen(read_rewards(written(tmp_path, **files))) == 0
    assert told in caplog.text


@pytest.mark.parametrize(
    ("as_json", "as_text", "rewards", "told"),
    [
        ("{bad", "0", {"speed": 0.0, "reward": 0.0}, "'speed' is 0."),
        ("{bad", "1", {"speed": 0.0, "reward": 0.0}, "may have written the other."),
        ('{"speed": 1}', "x", {"speed": 1.0, "reward": 0.0}, "'reward' is 0."),
        ('{"x": 1}', "0", {"x": 1.0, "speed": 0.0, "reward": 0.0}, "has 'x'. 'speed' is 0."),
        ('{"speed": 1}', "0", {"speed": 1.0, "reward": 0.0}, ""),
        ('{"speed": 0.2}', "1", {"speed": 0.2, "reward": 1.0}, ""),
        ('{"speed": 2, "reward": 1}', "1", {"speed": 2.0, "reward": 1.0}, ""),
    ],
)
def test_of_two_files_the_key_takes_its_number_or_0_if_reward_json_does_not_tell_it(
    tmp_path, caplog, as_json, as_text, rewards, told
) -> None:
    root = written(tmp_path, reward_json=as_json, reward_txt=as_text)
    found = read_rewards(root, key="speed")

    assert found == rewards
    assert chosen(found, "speed") == rewards["speed"]
    assert caplog.text.rstrip().endswith(told) if told else not caplog.text


def test_two_files_that_differ_are_told_where_the_reward_is_another_number_too(
    tmp_path, caplog
) -> None:
    as_json = '{"speed": 1, "reward": 1}'
    found = read_rewards(written(tmp_path, reward_json=as_json, reward_txt="0"), key="speed")

    assert found == {"speed": 1.0, "reward": 0.0}
    assert "wrote 1 to reward.json and 0 to reward.txt" in caplog.text
    assert "counts as 'reward'; workflow_args.reward_key is 'speed'." in caplog.text


@needs_bwrap
def test_the_reward_of_a_key_is_0_where_the_verifier_leaves_a_broken_file_beside_another(
    run_task, a_task
) -> None:
    script = "#!/bin/sh\ncd /logs/verifier\necho '{bad' > reward.json\necho 0 > reward.txt\n"
    experiences, _ = run_task(a_task(script), "Done.", reward_key="accuracy")

    assert experiences[-1].reward == 0


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "wrote no reward: neither /logs/verifier/reward.json nor"),
        ({"reward_txt": ""}, "reward.txt is empty, which is no number"),
        ({"reward_txt": "yes"}, "reward.txt is 'yes', which is no number"),
        ({"reward_txt": "nan"}, "reward.txt is nan, which is no finite number"),
        ({"reward_txt": "-inf"}, "reward.txt is -inf, which is no finite number"),
        ({"reward_json": ""}, "reward.json is no JSON"),
        ({"reward_json": "1"}, "reward.json is 1. It must be an object of numbers"),
        ({"reward_json": "{}"}, "reward.json is {}. It must be an object of numbers"),
        ({"reward_json": '{"reward": "1"}'}, "'reward' is '1', which is no number"),
        ({"reward_json": '{"reward": true}'}, "'reward' is True, which is no number"),
        ({"reward_json": '{"reward": null}'}, "'reward' is None, which is no number"),
        ({"reward_json": '{"reward": NaN}'}, "'reward' is nan, which is no finite number"),
        ({"reward_json": '{"a": 1, "b": Infinity}'}, "'b' is inf, which is no finite number"),
    ],
)
def test_what_is_no_finite_number_is_an_error_by_name(tmp_path, files, said):
    with pytest.raises(EnvError) as raised:
        read_rewards(written(tmp_path, **files))
    assert said in str(raised.value)


def test_a_reward_file_that_is_no_file_is_not_read(tmp_path):
    root = written(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("1")
    target = root / "logs" / "verifier" / "reward.txt"
    target.symlink_to(secret)
    with pytest.raises(EnvError, match="cannot be read"):
        read_rewards(root)
    target.unlink()
    os.mkfifo(target)
    with pytest.raises(EnvError, match="is no file"):
        read_rewards(root)
    target.unlink()
    target.write_bytes(bytes(2 << 20))
    with pytest.raises(EnvError, match="has 2097152 bytes"):
        read_rewards(root)


def test_a_reward_behind_a_linked_folder_is_not_read(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "reward.txt").write_text("1")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "verifier").symlink_to(elsewhere)

    with pytest.raises(EnvError, match="lies behind a link"):
        read_rewards(tmp_path)


def test_the_reward_is_the_key_else_reward_else_the_only_one():
    assert chosen({"reward": 1.0, "speed": 0.5}, "speed") == 0.5
    assert chosen({"reward": 1.0, "speed": 0.5}) == 1.0
    assert chosen({"speed": 0.5}) == 0.5
    with pytest.raises(EnvError, match=r"none is 'reward'. Say which by workflow_args.reward_key"):
        chosen({"a": 1.0, "b": 0.0})
    with pytest.raises(EnvError, match=r"wrote 'a', and workflow_args.reward_key is 'b'"):
        chosen({"a": 1.0}, "b")


@needs_bwrap
def test_the_exit_code_of_the_verifier_says_nothing(run_task, a_task):
    folder = a_task("#!/bin/sh\necho 0.5 > /logs/verifier/reward.txt\nexit 3\n")
    [experience], _ = run_task(folder, "true", action="raw", max_env_steps=1)

    assert experience.reward == 0.5


@needs_bwrap
def test_further_numbers_of_the_verifier_are_metrics(run_task, a_task):
    test = """#!/bin/sh\necho '{"reward": 1, "lines": 3}' > /logs/verifier/reward.json\n"""
    [experience], _ = run_task(a_task(test), "true", action="raw", max_env_steps=1)

    assert experience.metrics["verifier/lines"] == 3.0
    assert experience.info["harbor_task"] == "task"
    assert len(experience.info["harbor_digest"]) == 64


@needs_bwrap
@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("#!/bin/sh\necho it broke; exit 2\n", "(code 2): the verifier wrote no reward"),
        ("#!/bin/sh\necho nan > /logs/verifier/reward.txt\n", "is nan, which is no finite number"),
        ("#!/bin/sh\nsleep 60\n", "did not end in 1 s. Raise verifier.timeout_sec"),
        ("#!/bin/sh\ncat /dev/zero > /app/big\n", "It printed: cat: write error: File too large"),
        (f"#!/bin/sh\n{FILL}\n", "was ended by its limit of disk"),
    ],
)
def test_a_verifier_without_a_reward_is_an_error_and_not_zero(run_task, a_task, test, said):
    with pytest.raises(EnvError) as raised:
        run_task(
            a_task(test, verifier_s=1 if "sleep" in test else 20),
            "true",
            action="raw",
            max_env_steps=1,
        )
    assert said in str(raised.value)
    assert "the verifier of task" in str(raised.value)


@needs_bwrap
def test_what_the_verifier_printed_stands_in_its_error(run_task, a_task):
    with pytest.raises(EnvError, match="It printed: it broke"):
        run_task(a_task("#!/bin/sh\necho it broke\n"), "true", action="raw", max_env_steps=1)


@needs_bwrap
def test_an_agent_out_of_time_is_verified_all_the_same(run_task, a_task):
    folder = a_task(agent_s=1)
    [experience], _ = run_task(folder, call("echo hello > greeting.txt; sleep 60"))

    assert experience.reward == 1.0
    assert experience.metrics["agent/late"] == 1.0


@needs_bwrap
def test_a_separate_verifier_sees_the_artifacts_alone(run_task, a_task):
    toml = """
    artifacts = ["/app/greeting.txt", "/app/more"]
    [verifier]
    environment_mode = "separate"
    timeout_sec = 20
    [environment]
    docker_image = "debian"
    workdir = "/app"
    """
    test = """\
    #!/bin/sh
    if [ -e /app/left ]; then echo 0.1 > /logs/verifier/reward.txt; exit; fi
    if [ "$(cat /app/greeting.txt /app/more/deep)" = "hello
    x" ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
    """
    command = "echo hello > greeting.txt; touch left; mkdir more; echo x > more/deep"
    folder = a_task(test, toml=toml)
    [experience], _ = run_task(folder, command, action="raw", max_env_steps=1)

    assert experience.reward == 1.0


@needs_bwrap
def test_a_row_that_is_older_than_its_task_is_refused(run_task, a_task):
    with pytest.raises(BadTaskError, match="has changed since the row was written"):
        run_task(a_task(), "true", action="raw", row={"digest": "0" * 64})


@needs_bwrap
def test_a_task_of_a_row_may_lie_below_the_home(run_task, a_task, monkeypatch):
    folder = a_task()
    monkeypatch.setenv("HOME", str(folder.parent))

    experiences, _ = run_task(
        folder, call("echo hello > greeting.txt"), "Done.", row={"task_dir": f"~/{folder.name}"}
    )

    assert experiences[0].reward == 1.0
