"""How many failed runs end a run: counted over a batch of tasks, short steps with those before."""

from __future__ import annotations

import pytest
from trinity.common.experience import Experience
from trinity.common.outcome import Outcome
from trinity.common.workflows import Workflow
from trinity.errors import BadTaskError, EnvError, RunFailedError
from trinity_testing.builders import a_task


class Fails(Workflow):
    """Fails in as many of its runs as the row says."""

    def run(self):
        if self.run_id_base < int(self.task.raw_task["question"]):
            raise EnvError("the shop is closed")
        return [Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0)]


def tasks_failing(*counts, repeat_times=4):
    return [a_task(str(count), workflow=Fails, repeat_times=repeat_times) for count in counts]


def test_a_last_short_batch_of_bad_tasks_ends_no_run(world):
    made = world(*tasks_failing(0, 0, 0, 4), batch_size=3)

    assert made.step(1).num_experiences == 12
    last = made.step(2)  # 4 of the 12 runs of the last three tasks failed

    assert (last.num_experiences, last.metrics["rollout/failed_runs"]) == (0, 4.0)
    with pytest.raises(StopIteration):
        made.step(3)


def test_a_short_batch_ends_the_run_where_those_before_it_failed_too(world):
    made = world(*tasks_failing(0, 2, 2, 4), batch_size=3)
    made.step(1)

    text = (
        r"^8 of 12 rollouts failed \(with the 2 tasks before this step\), and "
        r"explorer\.max_failed_ratio is 0\.5:\n  env_error: .* task 2/0 "
    )
    with pytest.raises(RunFailedError, match=text):
        made.step(2)


def test_a_first_short_batch_is_counted_alone(world):
    made = world(*tasks_failing(4), batch_size=3)

    with pytest.raises(RunFailedError, match=r"^4 of 4 rollouts failed, and "):
        made.step()


def test_a_whole_batch_is_counted_alone(world):
    made = world(*tasks_failing(0, 0, 2, 3), batch_size=2)
    made.step(1)

    with pytest.raises(RunFailedError, match=r"^5 of 8 rollouts failed, and "):
        made.step(2)


def test_a_step_in_which_nothing_failed_ends_no_run(world):
    tasks = [*tasks_failing(0, 2), *tasks_failing(0, repeat_times=1)]
    made = world(*tasks, batch_size=2, max_failed_ratio=0.3)
    made.step(1)  # 2 of 8 runs

    assert made.step(2).num_experiences == 1  # 2 of 5 runs, none of them new


def test_what_was_counted_is_kept_over_a_resume(world):
    counts = (0, 0, 0, 4)
    before = world(*tasks_failing(*counts), batch_size=3)
    before.step(1)
    state = before.explorer.state_dict()
    assert state["recent_runs"] == [[4, 0], [4, 0], [4, 0]]

    after = world(*tasks_failing(*counts), batch_size=3)
    after.explorer.load_state_dict(state)
    assert after.step(2).metrics["rollout/failed_runs"] == 4.0

    of_an_older_version = world(*tasks_failing(*counts), batch_size=3)
    of_an_older_version.explorer.load_state_dict({"tasks": {"position": 3}})
    with pytest.raises(RunFailedError, match=r"^4 of 4 rollouts failed"):
        of_an_older_version.step(2)


def raising_first(error, *, num=2):
    """Return a workflow whose first ``num`` of two rollouts raise the error in their first try."""
    seen = set()

    class RaisesFirst(Workflow):
        def run(self):
            run = self.task.batch_id, self.task.task_id, self.run_id_base
            if run not in seen and self.run_id_base < num:
                seen.add(run)
                raise error
            return [Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0)]

    return RaisesFirst


def two_of(workflow):
    return [a_task(workflow=workflow, repeat_times=2) for _ in range(2)]


@pytest.mark.parametrize(("error", "num"), [(ValueError("no"), 1), (EnvError("closed"), 2)])
def test_the_run_goes_on_and_counts_failed_attempts(error, num, world):
    made = world(*two_of(raising_first(error, num=num)), max_retry_times=1)

    assert made.step().metrics["rollout/failed_runs"] == 0.0
    failed = made.explorer.failed_attempts
    assert failed.count == 2 * num
    assert "run 0, attempt 1 at " in failed.first


def test_attempts_that_end_the_run_are_counted(world):
    made = world(*tasks_failing(4, 4), max_retry_times=1)

    with pytest.raises(RunFailedError):
        made.step()

    assert made.explorer.failed_attempts.count == 16
    assert "the shop is closed" in made.explorer.failed_attempts.first


def test_failed_attempts_are_counted_on_after_a_resume(world):
    before = world(*two_of(raising_first(EnvError("closed"))), max_retry_times=1)
    before.step()

    after = world(*two_of(raising_first(EnvError("later"))), max_retry_times=1)
    after.explorer.load_state_dict({**before.explorer.state_dict(), "tasks": {"position": 0}})
    after.step(2)

    assert after.explorer.failed_attempts.count == 8
    assert "closed" in after.explorer.failed_attempts.first


@pytest.mark.parametrize(("error", "num_calls"), [(BadTaskError, 1), (EnvError, 3)])
def test_only_what_can_change_is_tried_again(error, num_calls, world):
    calls = []

    class Names(Workflow):
        def run(self):
            calls.append(1)
            raise error("there is no such game")

    task = a_task(workflow=Names)
    result = world(task, max_retry_times=2, max_failed_ratio=1.0).step()

    (failure,) = result.failures
    assert (len(calls), failure.attempt) == (num_calls, num_calls)
    assert failure.outcome is Outcome.ENV_ERROR
    assert failure.message == f"{error.__name__}: there is no such game"
