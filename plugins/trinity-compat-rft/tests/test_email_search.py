"""An agent searches mails, reads them and answers; a judge compares."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime

import pytest
from trinity.common.models.model import ModelWrapper
from trinity.common.workflows import WORKFLOWS
from trinity.errors import BadTaskError, ConfigError
from trinity_compat_rft.emails.mailbox import read_email_tool, search_emails_tool, write_mailbox
from trinity_compat_rft.emails.prepare import generate_database
from trinity_compat_rft.emails.records import FinalRubric
from trinity_compat_rft.emails.worth import worth
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

ANN, BOB = "ann@example.org", "bob@example.org"
ROW = {
    "id": 1,
    "question": "When do Bob and I meet?",
    "answer": "At noon.",
    "message_ids": ["<1>"],
    "how_realistic": 1.0,
    "inbox_address": ANN,
    "query_date": "2001-05-01",
}


def mail(number: int, **cells) -> dict:
    return {
        "message_id": f"<{number}>",
        "subject": "meeting",
        "from": BOB,
        "to": [ANN],
        "cc": [],
        "bcc": None,
        "date": datetime(2001, 4, number),
        "body": f"We meet at noon, says mail {number}.",
        "file_name": "inbox/1",
        **cells,
    }


@pytest.fixture
def mails(tmp_path, monkeypatch):
    """Write mails, and name their file; return it."""
    path = tmp_path / "mails.db"
    rows = [
        mail(1),
        mail(2, to=["eve@example.org"]),
        mail(3, **{"from": ANN, "to": [BOB]}, cc=["eve@example.org"]),
        mail(4, body="x" * 5001),
        mail(5, to=[ANN] * 31),
        mail(6, body="We meet at noon, says mail 1."),  # as the first, but for its name
    ]
    assert write_mailbox(path, rows) == 3
    monkeypatch.setenv("DEFAULT_EMAIL_DB_PATH", str(path))
    return path


def names(**asked) -> list[str]:
    return [found.message_id for found in search_emails_tool(**{"inbox": ANN, **asked})]


def test_mails_are_found_by_all_their_words_newest_first(mails) -> None:
    assert names(keywords=["noon", "meeting"]) == ["<3>", "<1>"]  # from or to Ann
    assert names(keywords=["noon", "midnight"]) == []
    assert names(keywords=['"no" OR 1=1']) == []
    assert names(keywords=["noon"], from_addr=BOB) == ["<1>"]
    assert names(keywords=["noon"], to_addr="eve@example.org") == ["<3>"]
    assert names(keywords=["noon"], sent_after="2001-04-02") == ["<3>"]
    assert names(keywords=["noon"], sent_before="2001-04-03") == ["<1>"]
    assert names(keywords=["noon"], max_results=1) == ["<3>"]
    assert "<b>noon</b>" in search_emails_tool(ANN, ["noon"])[0].snippet


def test_a_search_without_words_or_for_too_many_is_refused(mails) -> None:
    with pytest.raises(ValueError, match="no keywords"):
        search_emails_tool(ANN, [])
    with pytest.raises(ValueError, match="max_results is 11"):
        search_emails_tool(ANN, ["noon"], max_results=11)


def test_a_mail_is_read_with_its_recipients(mails) -> None:
    email = read_email_tool("<3>")

    assert (email.from_address, email.to_addresses, email.cc_addresses) == (
        ANN,
        [BOB],
        ["eve@example.org"],
    )
    assert (email.date, email.bcc_addresses) == ("2001-04-03 00:00:00", [])
    assert read_email_tool("<9>") is None


def test_a_data_set_becomes_a_database_once(tmp_path, monkeypatch, capsys) -> None:
    from datasets import Dataset

    source, path = tmp_path / "mails.parquet", tmp_path / "deep" / "mails.db"
    Dataset.from_list([mail(1), mail(2, bcc=[])]).to_parquet(source)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))

    generate_database(str(source), path)
    generate_database(str(source), path)

    monkeypatch.setenv("DEFAULT_EMAIL_DB_PATH", str(path))
    assert names(keywords=["noon"]) == ["<2>", "<1>"]
    assert "2 mails" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, (0.0, 0.0)),
        ({"attempted_answer": True}, (-1.0, 0.0)),
        ({"attempted_answer": True, "ever_found_right_email": True}, (-1.0, 0.1)),
        ({"returned_i_dont_know": True, "sources_correct": True}, (0.0, 0.1)),
        ({"attempted_answer": True, "answer_correct": True, "num_turns": 2}, (1.0, 1.08)),
        (
            {"answer_correct": True, "sources_correct": True, "num_sources": 2, "num_turns": 10},
            (1.0, 1.35),
        ),
    ],
)
def test_the_reward_counts_the_answer_and_the_way_to_it(known, expected) -> None:
    scores = worth(FinalRubric(**known), max_turns=10)

    assert (scores["accuracy"], scores["format"]) == pytest.approx(expected)


def call(name: str, **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


SEARCH = call("search_emails", inbox_address=ANN, query_date="2001-05-01", keywords=["noon"])
READ = call("read_email", message_id="<1>")
ANSWER = call("generate_response", answer="At noon", sources=["<1>"])


def searched(*answers, judge=("true",), row=ROW, **fields):
    """Return what the agent was shown, and the experiences of a run."""
    base = model_over(ScriptedEngine())
    engine = ScriptedEngine(*answers)
    settings = replace(base.settings, tool_call_parser="hermes")
    model = ModelWrapper(engine, base.chat_format, settings, endpoints=base._endpoints.opener)
    judges = [model_over(ScriptedEngine(*judge))] if judge else []
    task = a_task(workflow="email_search_workflow", raw_task=row, **fields)
    try:
        experiences = asyncio.run(task.to_workflow(model, judges).run_async())
    finally:
        for used in (model, *judges):
            used.close_endpoints()
    decode = engine.tokenizer.decode
    return [decode(one.request.prompt_token_ids) for one in engine.exchanges], experiences


def test_an_agent_that_finds_reads_and_names_the_right_mail_gets_all(mails) -> None:
    prompts, experiences = searched(SEARCH, READ, ANSWER)

    assert "<b>noon</b>" in prompts[1]
    assert "We meet at noon, says mail 1." in prompts[2]
    # 1, and 1 + 0.3 for the source + 0.1 / 1 source + 0.1 * (1 - 3 / 10 turns)
    assert [one.reward for one in experiences] == pytest.approx([2.47] * 3)
    assert experiences[0].metrics["actual_turns"] == 3.0
    assert {one.metrics["accuracy"] for one in experiences} == {1.0}


def test_a_wrong_answer_is_worth_less_than_its_way_there(mails) -> None:
    _, experiences = searched(SEARCH, READ, ANSWER, judge=["false"])

    assert [one.reward for one in experiences] == pytest.approx([-1 + 0.3] * 3)


def test_an_agent_is_told_what_is_wrong_with_its_calls(mails) -> None:
    prompts, experiences = searched(
        call("search_emails", inbox_address=ANN),
        call("delete_all"),
        call("read_email", message_id="<9>"),
        "It is at noon.",
        call("search_emails", inbox_address=ANN, query_date="2001-05-01", keywords=[]),
        call("search_emails", inbox_address=ANN, query_date="9999-12-31", keywords=["noon"]),
        ANSWER,
    )

    assert "the arguments of search_emails are wrong: query_date: Field required" in prompts[1]
    assert "there is no tool 'delete_all'" in prompts[2]
    assert "there is no mail '<9>'" in prompts[3]
    assert "Go on: call a tool" in prompts[4]
    assert "there are no keywords" in prompts[5]
    assert "query_date 9999-12-31 is too late" in prompts[6]
    assert len(experiences) == 7


def test_an_agent_without_an_answer_loses_1_and_nobody_is_asked(mails) -> None:
    _, experiences = searched("?", "?", judge=["unused"], workflow_args={"max_turns": 2})

    assert [one.reward for one in experiences] == [-1.0, -1.0]


def test_what_a_tool_shows_may_be_cut(mails) -> None:
    prompts, _ = searched(SEARCH, ANSWER, workflow_args={"tool_obs_char_limit": 20})

    assert '[{"message_id": "<3>' in prompts[1]
    assert "snippet" not in prompts[1]


def test_without_a_judge_the_answer_stands_in_the_rows_own(mails) -> None:
    alone = {"reward_fn_args": {"llm_as_a_judge": False}, "judge": ()}

    _, experiences = searched(ANSWER, **alone)

    assert [one.reward for one in experiences] == [1.0]
    _, experiences = searched(call("generate_response", answer=" ", sources=[]), **alone)
    assert [one.reward for one in experiences] == [0.0]
    with pytest.raises(ConfigError, match=r"its judge is explorer\.auxiliary_models\[0\]"):
        searched(ANSWER, judge=())


def test_a_row_without_a_column_is_named_and_missing_mails_are_said(mails, monkeypatch) -> None:
    row = {name: value for name, value in ROW.items() if name != "inbox_address"}
    with pytest.raises(BadTaskError, match="inbox_address: Field required"):
        searched(ANSWER, row=row)

    monkeypatch.delenv("DEFAULT_EMAIL_DB_PATH")
    with pytest.raises(ConfigError, match=r"trinity_compat_rft\.emails\.prepare FILE"):
        WORKFLOWS.get("email_search_workflow").check_arguments({})


def test_the_published_modules_have_their_names() -> None:
    from trinity.common.workflows.envs.email_searcher.prepare_data import generate_database
    from trinity.common.workflows.envs.email_searcher.react_agent import EmailSearchAgent
    from trinity.common.workflows.envs.email_searcher.utils import FinalRubric, judge_correctness
    from trinity.common.workflows.envs.email_searcher.workflow import EmailSearchWorkflow

    assert WORKFLOWS.get("email_search_workflow") is EmailSearchWorkflow
    assert all((generate_database, EmailSearchAgent, FinalRubric, judge_correctness))
