"""Each page shows what the run knows."""

from __future__ import annotations

import re

import pytest
from trinity.runtime.record.evaluation_samples import EvaluationLog
from trinity.runtime.record.records import write_record

from .conftest import Built, a_row


def test_a_run_is_shown_with_its_state_numbers_and_curves(built, browse) -> None:
    said = browse(built.path).text()

    assert "rft finished" in said
    assert "samples kept 16" in said
    assert "reward 0.2" in said
    assert "explore 1000.0 25 %" in said
    html = browse(built.path).html()
    assert html.count("<figure") == 4  # reward, loss, seconds of a step, where the time goes
    assert 'href="/a-token/run/0/step/2"' in html


def test_what_advisors_found_stands_above_the_curves_and_leads_to_the_samples(
    built, browse
) -> None:
    finding = {
        "advisor": "dead_groups", "role": "explorer", "step": 8, "message": "all rewards are 0",
        "remedy": "Use easier tasks", "samples": ["8/0/1/0", "8/0/2/0", "8/3/0/0"],
    }  # fmt: skip
    built.status(findings=[finding])

    page = browse(built.path)

    assert "dead_groups (explorer step 8): all rewards are 0. Use easier tasks." in page.text()
    assert page.html().count('<a href="/a-token/run/0/task/8/') == 2


def test_a_step_is_shown_as_conversations_with_how_likely_each_token_was(built, browse) -> None:
    html = browse(built.path).html("step/2?only=positive")

    assert html.count("<article") == 4
    assert '<span class="t p0" title="token 3, logprob -0.010, advantage 0.500">b</span>' in html
    assert '<span class="t p4" title="token 2, logprob -3.000, advantage 0.500"> a</span>' in html
    assert html.count("&lt;s&gt; say") == 1  # which all of them share


def test_a_short_reply_takes_a_line_and_a_long_one_a_card(built, browse) -> None:
    many = {"tokens": [0, 1] + [2] * 80, "logprobs": [-1.0] * 80, "advantages": [0.5] * 80}
    built.samples(3, [a_row(batch=3), a_row(1, batch=3, **many)])

    html = browse(built.path).html("step/3")

    assert html.count('<article class="sample short">') == 1
    assert html.count('<article class="sample">') == 1


def test_a_page_is_called_by_the_run_s_project_and_name_and_its_stage(
    built, browse, tmp_path
) -> None:
    stage = tmp_path / "p" / "rft" / "grpo"
    stage.mkdir()
    (stage / "config.yaml").write_text("project: addition\nname: rft\n")
    (built.path / "config.yaml").write_text("project: addition\nname: <b>rft\n")

    html = browse(stage).html()

    assert "<title>addition/rft/grpo</title>" in html
    assert "addition/rft/grpo" in browse(stage).text("failures")
    assert "<title>addition/&lt;b&gt;rft</title>" in browse(built.path).html()


def test_samples_are_ordered_and_found_by_task(built, browse) -> None:
    page = browse(built.path)

    ordered = page.text("step/1?order=reward")
    one_task = page.text("step/1?task=1/1")

    assert ordered.index("reward 1") < ordered.index("reward 0")
    assert "4 of 8 samples" in one_task
    assert "all rollouts of task 1/0" not in one_task


def test_a_page_of_a_step_holds_sixteen_samples_and_leads_to_the_rest(built, browse) -> None:
    built.samples(3, [a_row(run, batch=3) for run in range(20)])
    page = browse(built.path)

    assert page.html("step/3").count("<article") == 16
    assert page.html("step/3?page=1").count("<article") == 4
    assert "page 1 of 2" in page.text("step/3")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"action_mask": [True, False]}, "1 tokens are not the model's own"),
        ({"truncate_status": "prompt_truncated"}, "nothing is trained: its prompt was cut"),
        ({"action_mask": [False, False]}, "the workflow or an operator masked all tokens"),
        ({"advantages": [0.0, 0.0]}, "all advantages are 0: it taught nothing"),
    ],
)
def test_what_was_not_trained_is_said_with_the_reason(fields, reason, built, browse) -> None:
    built.samples(3, [a_row(batch=3, **fields)])

    assert reason in browse(built.path).text("step/3")


def test_all_rollouts_of_a_task_stand_beside_each_other_wherever_they_were_trained(
    built, browse
) -> None:
    built.samples(3, [a_row(4, batch=2, task=1)])  # a late one of step 2's task
    built.rollouts(a_row(5, batch=2, task=1, response_text="dropped by an operator"))

    html, said = browse(built.path).html("task/2/1"), browse(built.path).text("task/2/1")

    assert html.count("<section>") == 5
    assert "5 rollouts, rewards 0 1 0 1 0" in said
    assert "trained in step 3" in said
    assert "Not trained, or no longer kept" in said
    assert "dropped by an operator" in said


def test_several_runs_share_charts_and_can_be_chosen(built, browse, tmp_path) -> None:
    other = tmp_path / "p" / "other"
    (other / "monitor").mkdir(parents=True)
    text = (built.path / "monitor" / "metrics.jsonl").read_text().replace("actor/loss", "loss")
    (other / "monitor" / "metrics.jsonl").write_text(text)
    page = browse(built.path, other)

    both, one = page.html("/"), page.html("/?run=1")

    assert both.count("<polyline") == 2 * one.count("<polyline") == 6
    assert 'class="key c0">other' in one
    assert "rft" in page.text("/run/0")


def test_a_folder_of_runs_opens_each_of_them_and_a_run_its_stages(built, browse, tmp_path) -> None:
    (tmp_path / "q" / "staged" / "sft").mkdir(parents=True)
    (tmp_path / "q" / "staged" / "sft" / "config.yaml").write_text("seed: 1")

    said = browse(tmp_path).text("/")

    assert "p/rft" in said
    assert "q/staged/sft" in said


def test_a_run_that_begins_while_somebody_looks_is_added_and_the_others_keep_their_places(
    built, browse, tmp_path
) -> None:
    page = browse(tmp_path)
    page.html("/")
    (tmp_path / "p" / "earlier").mkdir()
    (tmp_path / "p" / "earlier" / "config.yaml").write_text("seed: 1")

    assert "earlier" in page.text("/")
    assert "rft finished" in page.text("/run/0")
    assert "earlier" in page.text("/run/1")


def test_a_page_of_a_running_run_asks_again_and_of_a_finished_one_does_not(
    built, browse, monkeypatch
) -> None:
    page = browse(built.path)
    assert "data-from" not in page.html()
    monkeypatch.setattr("trinity_studio.view.run.is_held", lambda path: True)
    built.status(status="running")

    assert 'data-from="/a-token/run/0/live"' in page.html()
    built.metrics({"step": 3, "role": "explorer", "rollout/reward/mean": 0.75})
    assert "reward 0.75" in page.text("live")


def test_samples_that_come_while_a_run_goes_on_are_seen_and_those_cut_off_are_gone(
    built, browse
) -> None:
    from trinity.runtime.record.sample_files import cut_samples

    page = browse(built.path)
    page.html()
    built.samples(3, [a_row(batch=3)])
    assert "samples kept 17" in page.text()
    cut_samples(built.path, trained=1)
    assert "samples kept 8" in page.text()
    assert "There are no samples of step 3" in page.text("step/3")


def test_provenance_has_plugins_settings_with_their_source_and_what_changed(built, browse) -> None:
    starts = (
        '{"at": "2030-01-02", "digest": "d1", "plugins": {"x": "1"}, "changes": []}\n'
        '{"at": "2030-01-03", "digest": "d2", "plugins": {"x": "2"}, '
        '"changes": [["seed", "2", "3"]], "trained": 7}\n'
    )
    (built.path / "starts.jsonl").write_text(starts)

    said = browse(built.path).text("provenance")

    assert "2030-01-03 explore 0, train 7 d2 seed 2 → 3 x: 1 -> 2" in said
    assert "mine my-dist 1.2" in said
    assert "seed 3 run.yaml" in said
    assert "1 settings that have their default" in said


def test_failures_stand_by_plugin_with_their_traceback_and_count(built, browse) -> None:
    told = "workflow_error: workflow 'w' (my-dist 1.2), task 1/0 (rows.jsonl:3), run 0, attempt 1"
    (built.path / "trinity.log").write_text(
        f"2030-01-02 10:00:00,000 ERROR trinity.traceback: {told}: ValueError: no\n"
        "Traceback (most recent call last):\n  File 'x.py', line 3, in run\nValueError: no\n"
        "2030-01-02 10:00:01,000 ERROR trinity.traceback: 4 more with the same traceback in this "
        f"step: {told}: ValueError: no\n"
        "2030-01-02 10:00:02,000 WARNING trinity.x: step 7 left nothing to train on\n"
        "2030-01-02 10:00:03,000 INFO trinity.x: all is well\n"
    )

    said = browse(built.path).text("failures")

    assert said.index("my-dist 1.2 5\u00d7") < said.index("the run itself 1\u00d7")
    assert "File 'x.py', line 3, in run" in said
    assert "step 7 left nothing to train on driver, 2030-01-02 10:00:02,000" in said
    assert "all is well" not in said


def test_what_no_step_trained_is_found_among_the_rollouts(built, browse) -> None:
    page = browse(built.path)

    assert "task 2/1 4 experiences" in page.text("rollouts")


def exchange(step, *, said, **info):
    messages = [{"role": "user", "content": f"ask {step}"}, {"role": "assistant", "content": said}]
    fields = {"messages": messages, "info": {"request": f"{step}-0", **info}}
    row = a_row(batch=9, **fields)
    row.eid.step = step
    return row


def test_exchanges_are_a_tree_that_says_where_a_chain_broke(built, browse) -> None:
    built.rollouts(
        exchange(0, said="first", agent="planner"),
        exchange(1, said="second", continues="0-0"),
        exchange(2, said="third", chain_broken="edited"),
        exchange(4, said="fifth", continues="3-0"),  # the fourth is within its chain
    )

    html, said = (
        browse(built.path).html("exchanges/9/0/0"),
        browse(built.path).text("exchanges/9/0/0"),
    )

    assert "request 0-0 by planner" in said
    assert "A new chain begins here, and the reply before is a chain of its own: edited" in said
    assert "Its tokens are in the chain that goes on from it" in said
    place = re.findall(r'class="below-(\d+)".*?<b>reply</b>(\w+)', html, re.DOTALL)
    assert [one for one in place if one[1] != "fifth"] == [
        ("0", "first"), ("1", "second"), ("0", "third"),
    ]  # fmt: skip
    assert 'href="/a-token/run/0/exchanges/9/0/0"' in browse(built.path).html("task/9/0")


def test_a_run_that_only_trains_counts_its_train_steps(built, browse) -> None:
    built.status(mode="train", train_steps=2, explore_steps=0, total_steps=60)

    said = browse(built.path).text()
    assert "train steps 2 of 60" in said
    assert "explore steps" not in said


def test_a_run_that_only_evaluates_shows_its_reward_and_where_its_samples_are(
    tmp_path, browse
) -> None:
    run = Built(tmp_path / "eval" / "test-model")
    run.path.mkdir(parents=True)
    (run.path / "config.yaml").write_text("mode: bench\nproject: eval\nname: test-model\n")
    record = {"status": "finished", "mode": "bench", "explore_steps": 0, "train_steps": 0}
    write_record(run.path / "bench.json", {**record, "error": ""})
    run.metrics({"step": 0, "role": "explorer", "bench/test/reward/mean@4": 0.625})
    EvaluationLog(run.path, limit=10**6, is_bench=True).evaluated(0, "test", [a_row()])

    browser = browse(run.path)
    shown, html = browser.text(), browser.html()

    assert "test-model finished" in shown
    assert "held out 0.625" in shown
    assert "run.json" not in shown
    assert "no metrics" not in shown
    assert "nothing was trained yet" not in shown
    assert re.search(r'href="[^"]*/run/0/evaluations">What it sampled<', html)
    row = browser.text("/").partition("samples ")[2]
    assert re.search(r"test-model finished 0 \S 0\.625 0\.625", row)
