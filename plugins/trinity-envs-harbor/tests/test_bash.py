"""The built-in agent: what the model sees, and what is trained."""

from __future__ import annotations

from trinity_envs_harbor.bash_agent import shown_result
from trinity_sandbox.base import CommandResult
from trinity_testing.checks.sampled_tokens import trained_spans, unsampled

from .conftest import call, needs_bwrap


def prompts(engine):
    return [engine.tokenizer.decode(e.request.prompt_token_ids) for e in engine.exchanges]


@needs_bwrap
def test_the_model_calls_the_tool_until_it_answers_without_a_call(run_task, a_task):
    [experience], engine = run_task(
        a_task(), call("pwd; ls"), call("echo hello > greeting.txt"), "done", system="Act."
    )

    assert experience.reward == 1.0
    assert experience.metrics["agent/replies"] == 3.0
    assert experience.metrics["agent/commands"] == 2.0
    assert "system\nAct." in prompts(engine)[0]
    assert "user\nWrite hello into greeting.txt.<" in prompts(engine)[0]
    assert "tool\n/app<" in prompts(engine)[1]
    assert "tool\n[no output]<" in prompts(engine)[2]
    assert len(trained_spans(experience)) == 3
    for span in trained_spans(experience):
        assert not unsampled(experience, span, engine.exchanges)


@needs_bwrap
def test_files_stay_between_calls_and_in_tmp_too(run_task, a_task):
    [experience], _ = run_task(
        a_task(), call("echo hello > /tmp/a"), call("cp /tmp/a greeting.txt"), "done"
    )

    assert experience.reward == 1.0


@needs_bwrap
def test_a_fenced_block_is_a_command_and_a_reply_without_one_ends(run_task, a_task):
    replies = ("I write it.\n```bash\necho hello > greeting.txt\ncat greeting.txt\n```", "Done.")
    [experience], engine = run_task(a_task(), *replies, action="fenced")

    assert experience.reward == 1.0
    assert "user\nhello<" in prompts(engine)[1]
    assert experience.metrics["agent/replies"] == 2.0


@needs_bwrap
def test_replies_end_at_their_number(run_task, a_task):
    _, engine = run_task(a_task(), "false", "false", action="raw", max_env_steps=2)

    assert len(engine.exchanges) == 2
    assert "user\n[exit code 1]<" in prompts(engine)[1]


@needs_bwrap
def test_a_call_of_something_else_is_answered_with_why(run_task, a_task):
    replies = (
        '<tool_call>\n{"name": "sh", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "bash", "arguments": {"cmd": "ls"}}\n</tool_call>',
        "done",
    )
    [experience], engine = run_task(a_task(), *replies)

    assert "error: no tool is named 'sh'; there is bash." in prompts(engine)[1]
    assert 'error: bash needs {"command": "..."}.' in prompts(engine)[2]
    assert experience.metrics["agent/commands"] == 0.0


def test_long_output_loses_its_middle_and_says_how_much():
    ended = CommandResult(exit=0, stdout=b"a" * 10 + b"b" * 5 + b"c" * 10, stderr=b"")

    assert shown_result(ended, most=20) == f"{'a' * 10}\n[5 characters left out]\n{'c' * 10}"


def test_how_a_command_ended_is_told():
    killed = CommandResult(exit=-9, stdout=b"x\n", stderr=b"", reason="memory")

    assert shown_result(killed, most=20) == "x\n[ended by its limit of memory]"


def test_of_long_output_no_more_is_shown_than_is_asked_for():
    ended = CommandResult(exit=0, stdout=b"abcdefgh", stderr=b"")

    assert shown_result(ended, most=1) == "\n[8 characters left out]\n"
    assert shown_result(ended, most=5) == "ab\n[4 characters left out]\ngh"
