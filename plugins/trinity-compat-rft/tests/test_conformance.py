"""The plugin keeps the contracts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from trinity.common.models.model import ModelWrapper
from trinity_compat_rft.emails.mailbox import write_mailbox
from trinity_compat_rft.workflows.email_search import EmailSearchWorkflow
from trinity_compat_rft.workflows.rubric_judge import RubricJudgeWorkflowWithAPI
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing import conformance
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over


@pytest.fixture(scope="module", autouse=True)
def judge_and_mails(tmp_path_factory) -> Iterator[None]:
    """Set the environment variables that name a judge behind an API, and a database of mails."""
    mails = tmp_path_factory.mktemp("mails") / "mails.db"
    write_mailbox(mails, [])
    base, room = model_over(ScriptedEngine()), EndpointHost()  # a server of its own: checks fork
    engine = ScriptedEngine('```json\n{"rating": 7}\n```', repeat=True)
    model = ModelWrapper(engine, base.chat_format, base.settings, endpoints=room)
    endpoint = model.endpoint(record=False, force_sampling=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        patch.setenv("OPENAI_API_KEY", endpoint.key)
        patch.setenv("DEFAULT_EMAIL_DB_PATH", str(mails))
        yield
    room.close()


# What the fixture sets is not there when the cases are made: these come with what they need.
GIVEN = {
    "workflow/rubric_judge_openai_workflow": RubricJudgeWorkflowWithAPI.conformance_args,
    "workflow/email_search_workflow": EmailSearchWorkflow.conformance_args,
}
test_plugin = conformance.suite("compat_rft", args=GIVEN)
