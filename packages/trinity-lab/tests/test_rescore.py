"""``trinity rescore``: other rewards for kept rollouts, with numbers by hand."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from trinity.common.experience import EID, Experience
from trinity_lab.reward_changes import Pair, reward_changes

REWARDS = '''
import json
import os
import urllib.request

from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("length_reward")
class LengthReward(RewardFn):
    """A letter is worth so much; the truth alone is worth nothing."""

    def __init__(self, worth=1.0):
        self.worth = worth

    def __call__(self, *, response, truth, **kwargs):
        return {"letters": self.worth * len(response.replace(truth, ""))}


@REWARD_FUNCTIONS.register_module("judge_reward")
class JudgeReward(RewardFn):
    """What a judge behind an address says."""

    def __call__(self, *, response, **kwargs):
        body = json.dumps({"response": response}).encode()
        with urllib.request.urlopen(os.environ["JUDGE"], data=body, timeout=10) as reply:
            return float(json.loads(reply.read())["score"])
'''
# Replies and rewards of two groups of three; the answers are "a" and "b".
ROLLOUTS = {
    "1/0/0": ("a", 1.0), "1/0/1": ("xxa", 0.5), "1/0/2": ("xxxx", 0.0),
    "1/1/0": ("b", 1.0), "1/1/1": ("b", 1.0), "1/1/2": ("yb", 0.0),
}  # fmt: skip


@pytest.fixture
def plugins(tmp_path):
    folder = tmp_path / "rewards"
    folder.mkdir()
    (folder / "rewards_of_test.py").write_text(REWARDS)
    return folder


@pytest.fixture
def kept(tmp_path):
    """Return a run directory with the rollouts."""
    tasks = tmp_path / "tasks.jsonl"
    lines = [{"q": "first", "a": "a"}, {"q": "second", "a": "b"}]
    tasks.write_text("".join(json.dumps(one) + "\n" for one in lines))
    taskset = {"name": "t", "path": str(tasks), "default_reward_fn_type": "exact"}
    taskset["format"] = {"prompt_key": "q", "response_key": "a"}
    config = {
        "mode": "both", "project": "p", "name": "old", "seed": 1,
        "checkpoint_root_dir": str(tmp_path / "checkpoints"),
        "algorithm": {"algorithm_type": "grpo", "advantage_fn": "grpo", "repeat_times": 3},
        "model": {"model_path": "some/model"},
        "buffer": {"train_batch_size": 6, "explorer_input": {"tasksets": [taskset]}},
    }  # fmt: skip
    run = tmp_path / "old"
    (run / "buffer").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (run / "buffer" / "explorer_output.jsonl").write_text("".join(map(_line, ROLLOUTS)))
    return run


def _line(rid: str) -> str:
    batch, task, number = map(int, rid.split("/"))
    response, reward = ROLLOUTS[rid]
    row = Experience(
        tokens=[5, 6, 7, 8], prompt_length=2, logprobs=[-1.0, -2.0], reward=reward,
        eid=EID(batch=batch, task=task, run=number), response_text=response,
        prompt_text=("first", "second")[task],
        info={"model_version": 3, "task_index": {"taskset_id": 0, "index": task}},
    )  # fmt: skip
    return json.dumps(row.to_dict()) + "\n"


def test_means_orders_and_places_are_those_by_hand(call, kept, plugins) -> None:
    found = json.loads(
        call("rescore", kept, "--reward", "length_reward", "--plugin-dir", plugins, "--json").stdout
    )

    # letters beside the truth: 0 2 4 and 0 0 1
    assert found["rewards"] == ["exact", "length_reward"]
    changes = found["changes"]
    assert changes["mean"] == pytest.approx([3.5 / 6, 7 / 6])
    # 1 0.5 0 -> 0 2 4: three pairs turn; 1 1 0 -> 0 0 1: two turn, one stays equal
    assert changes["orders"] == {"kept": 1, "turned": 5, "tied": 0, "untied": 0}
    # deviations: sqrt(1/6) and sqrt(2/9) before, 2 sqrt(2/3) and sqrt(2/9) after
    before, after = (1 / 6) ** 0.5 + (2 / 9) ** 0.5, 2 * (2 / 3) ** 0.5 + (2 / 9) ** 0.5
    assert changes["spread"] == pytest.approx([before / 2, after / 2])
    assert changes["num_dead"] == [0, 0]
    first = changes["largest"][0]
    assert (first["rollout"], first["places"], first["size"]) == ("1/0/0", [1.0, 3.0], 3)
    # all but the middle one, whose advantage was and is 0
    assert found["advantages"]["signs"] == [5, 6]
    assert found["advantages"]["is_of_run"]
    assert found["config"] is None


def test_the_text_says_the_same(call, kept, plugins) -> None:
    said = call("rescore", kept, "--reward", "length_reward", "--plugin-dir", plugins).stdout

    assert "6 rollouts, 2 groups" in said
    assert "17% keep their order, 83% turn around, 0% become equal, 0% become different" in said
    assert "advantages (grpo): 83% change their sign" in said
    assert "1 -> 3 of 3" in said
    assert "train on them" not in said


def test_options_reach_the_reward(call, kept, plugins) -> None:
    found = json.loads(
        call(
            *("rescore", kept, "--reward", "length_reward", "--reward-arg", "worth=0.5"),
            *("--plugin-dir", plugins, "--json"),
        ).stdout
    )

    assert found["changes"]["mean"][1] == pytest.approx(3.5 / 6)


def test_the_written_rows_keep_tokens_and_log_probabilities(call, kept, plugins, tmp_path) -> None:
    to = tmp_path / "new"
    said = call(
        "rescore", kept, "--reward", "length_reward", "--plugin-dir", plugins, "--to", to
    ).stdout

    rows = [json.loads(line) for line in (to / "experiences.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [0.0, 2.0, 4.0, 0.0, 0.0, 1.0]
    assert [row["metrics"] for row in rows][2] == {"letters": 4.0}
    assert all(row["tokens"] == [5, 6, 7, 8] for row in rows)
    assert all(row["logprobs"] == [-1.0, -2.0] for row in rows)
    # (4 - 2) / (2 + 1e-6) of its group
    assert rows[2]["advantages"] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert rows[2]["info"]["rescored_from"] == {"reward": 0.0, "model_version": 3}
    assert "model_version" not in rows[2]["info"]
    config = yaml.safe_load((to / "run.yaml").read_text())
    assert (config["mode"], config["name"]) == ("train", "new")
    assert config["algorithm"]["rollout_correction"] == "truncated_importance_sampling"
    assert f"trinity run --config {to / 'run.yaml'}" in " ".join(said.split())


def test_a_judge_behind_an_address_scores_and_what_it_cannot_judge_is_left_out(
    call, kept, plugins, monkeypatch, tmp_path
) -> None:
    with a_judge() as address:
        monkeypatch.setenv("JUDGE", address)
        arguments = ("rescore", kept, "--reward", "judge_reward", "--plugin-dir", plugins)
        said = call(*arguments, "--to", tmp_path / "new").stdout

    assert "5 rollouts, 2 groups" in said  # it refuses "xxxx"
    assert "not scored, and left out: 1 of the rollouts: " in said
    rows = (tmp_path / "new" / "experiences.jsonl").read_text().splitlines()
    assert [json.loads(row)["reward"] for row in rows] == [0.1, 0.3, 0.1, 0.1, 0.2]


def a_judge():
    """Return a server that gives a tenth for each letter, and refuses four of them."""
    from contextlib import contextmanager

    class Judge(BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers["Content-Length"])
            response = json.loads(self.rfile.read(size))["response"]
            self.send_response(200 if len(response) < 4 else 500)
            self.end_headers()
            self.wfile.write(json.dumps({"score": len(response) / 10}).encode())

        def log_message(self, *arguments):
            """Say nothing."""

    @contextmanager
    def served():
        server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()

    return served()


def test_of_a_rollout_that_was_made_again_the_last_counts(call, kept, plugins) -> None:
    file = kept / "buffer" / "explorer_output.jsonl"
    first = json.loads(file.read_text().splitlines()[0]) | {"response_text": "zzzzza"}
    with file.open("a") as opened:
        opened.write(json.dumps(first) + "\n" + '{"tokens": [5')  # the last one is being written

    found = call("rescore", kept, "--reward", "length_reward", "--plugin-dir", plugins, "--json")

    assert json.loads(found.stdout)["changes"]["mean"][1] == pytest.approx((5 + 7) / 6)


def test_a_taskset_that_changed_since_is_noticed(call, kept, plugins, tmp_path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    arguments = ("rescore", kept, "--reward", "length_reward", "--plugin-dir", plugins)
    tasks.write_text(tasks.read_text().replace("second", "third"))
    assert "note: the prompts of 3 rollouts do not hold" in call(*arguments).stdout

    tasks.write_text(tasks.read_text().splitlines()[0] + "\n")
    assert "Put the file back as it was" in str(call(*arguments).exception)


@pytest.mark.parametrize(
    ("reward", "break_", "says"),
    [
        ("lenght_reward", None, "length_reward"),
        ("length_reward", "buffer/explorer_output.jsonl", "kept no rollouts"),
        ("length_reward", "config.yaml", "holds no run"),
    ],
)
def test_what_cannot_be_scored_is_said(call, kept, plugins, reward, break_, says) -> None:
    if break_:
        (kept / break_).unlink()

    ended = call("rescore", kept, "--reward", reward, "--plugin-dir", plugins)

    assert ended.exit_code != 0
    assert says in str(ended.exception)


def test_a_folder_with_something_in_it_is_left_alone(call, kept, plugins, tmp_path) -> None:
    arguments = ("rescore", kept, "--reward", "length_reward", "--plugin-dir", plugins)
    ended = call(*arguments, "--to", tmp_path)

    assert "is not empty" in str(ended.exception)


def test_equal_rewards_that_become_different_and_back_are_told_apart() -> None:
    rewards = {"1/0/0": (1.0, 0.0), "1/0/1": (1.0, 1.0), "1/0/2": (0.0, 1.0)}
    pairs = [
        Pair(rollout=rid, group="1/0", before=before, after=after)
        for rid, (before, after) in rewards.items()
    ]

    # 0-1: equal, then different; 0-2: turned; 1-2: different, then equal
    assert reward_changes(pairs).orders == {"kept": 0, "turned": 1, "tied": 1, "untied": 1}
