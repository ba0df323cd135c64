"""What an SDK raises behind a run that went well is counted, and what nobody knows is shown."""

import asyncio
import gc
import logging

import pytest
from trinity.common.workflows.agent import AgentWorkflow
from trinity_serve.late_errors import late_errors
from trinity_testing.builders import a_task


def leave_a_task(error: Exception) -> None:
    """Leave a task that failed and that nobody awaits, as SDKs do with workers of theirs."""

    async def fail() -> None:
        raise error

    async def start() -> None:
        asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(0)

    asyncio.run(start())
    gc.collect()


class ClosedLate:
    """Is closed when it is deleted, as clients are that outlive their loop."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __del__(self) -> None:
        raise self.error


@pytest.fixture
def ran(model_of):
    """Return what runs an agent that says hello, then does something."""
    late_errors.taken()

    def run(after):
        def agent(client):
            messages = [{"role": "user", "content": "hi"}]
            client.chat.completions.create(model="scripted", messages=messages)
            after()
            return 1.0

        task = a_task(raw_task={"q": "hi"}, workflow_args={"agent": agent}, task_id=0)
        task.reward_fn = None
        [experience] = AgentWorkflow(task=task, model=model_of("hello")).run()
        return experience

    yield run
    late_errors.taken()  # none of these is the next test's


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Event loop is closed"),
        pytest.param(ValueError("task_done() called too many times"), marks=pytest.mark.acceptance),
    ],
    ids=["closed loop", "task_done"],
)
def test_a_known_error_behind_a_run_is_counted_and_not_shown(ran, caplog, capsys, error):
    def after():
        leave_a_task(error)
        ClosedLate(error)

    with caplog.at_level(logging.DEBUG, logger="asyncio"):
        experience = ran(after)

    assert experience.reward == 1.0
    assert experience.metrics["api/late_errors"] == 2.0
    assert "never retrieved" not in caplog.text
    assert "Exception ignored" not in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("the loop is odd"),
        pytest.param(ValueError("task_done() is odd"), marks=pytest.mark.acceptance),
        pytest.param(KeyError("x"), marks=pytest.mark.acceptance),
    ],
    ids=["runtime", "value", "key"],
)
def test_any_other_error_is_shown_as_before(ran, caplog, error):
    with caplog.at_level(logging.DEBUG, logger="asyncio"):
        experience = ran(lambda: leave_a_task(error))

    assert "Task exception was never retrieved" in caplog.text
    assert "api/late_errors" not in experience.metrics


def test_an_error_in_a_del_that_nobody_knows_reaches_who_heard_of_it_before(ran):
    heard = []
    ran(lambda: None)  # it listens from here on
    before, late_errors._unraisable = late_errors._unraisable, heard.append
    try:
        ClosedLate(RuntimeError("odd"))
        ClosedLate(RuntimeError("Event loop is closed"))
    finally:
        late_errors._unraisable = before

    assert [str(one.exc_value) for one in heard] == ["odd"]
