"""What an environment answers is kept, and given again to a workflow that acts as it did."""

import contextlib
import json
import random

import numpy as np
import pytest
from trinity.common.workflows import Task, recorded
from trinity.common.workflows.recorded_env import LIMIT, Recording
from trinity.errors import DataError, EnvError
from trinity_debug.environments import RepeatedEnvironments, answers_of


class Dice:
    """Answers by chance; ``close`` counts."""

    name = "dice"
    num_closed = 0

    def reset(self, *, sides):
        self._sides = sides
        return "thrown", {"sides": (1, sides)}

    def step(self, action):
        self.last = random.random()
        return f"{action}: {self.last}", self.last, self.last > 0.9, {"at": [self._sides, None]}

    def close(self):
        Dice.num_closed += 1


def play(task, *actions, make=Dice):
    env = recorded(make, task)
    assert getattr(env, "colour", "none") == "none"
    seen = [env.name, env.reset(sides=6)]
    for action in actions:
        seen += [env.step(action), env.last]
    env.close()
    return seen


def never():
    raise AssertionError("the environment was built")


def kept(*actions, make=Dice, playing=play):
    recording = Recording()
    return playing(Task(environments=recording), *actions, make=make), recording.text()


def again(text, *actions, playing=play, is_over=False, make=never):
    environments = RepeatedEnvironments(
        answers_of(text, place="run/1/0/0"), is_over=lambda: is_over
    )
    try:
        return playing(Task(environments=environments), *actions, make=make), environments
    except EnvError as error:
        return error, environments


def test_a_replay_gives_the_same_answers_20_times_and_builds_nothing() -> None:
    seen, text = kept("a", "b")
    for _ in range(20):
        given, environments = again(text, "a", "b")
        assert given == seen
        assert (environments.departure, environments.left) == (None, None)
    assert isinstance(seen[1][1]["sides"], tuple)


def test_without_a_run_that_is_kept_the_environment_is_its_own() -> None:
    assert type(recorded(Dice, Task())) is Dice


def test_another_action_is_found_at_its_step() -> None:
    _, text = kept("a", "b", "c")
    error, environments = again(text, "a", "x", "c")
    assert "step 3 of the environment differs" in str(error)
    found = environments.departure
    assert (found.step, found.of, found.was, found.now) == (3, 4, "step('b')", "step('x')")


def test_a_step_more_and_a_step_less_are_found() -> None:
    _, text = kept("a", "b")
    _, more = again(text, "a", "b", "c")
    assert (more.departure.step, more.departure.was, more.departure.now) == (4, "", "step('c')")
    _, fewer = again(text, "a")
    assert fewer.departure is None
    assert (fewer.left.step, fewer.left.was, fewer.left.now) == (3, "step('b')", "")


def test_the_first_difference_stands_and_none_follows_one_of_the_model() -> None:
    _, text = kept("a")
    assert again(text, "x", is_over=True)[1].departure is None


def test_what_was_never_asked_is_named() -> None:
    _, text = kept("a")
    _, environments = again(text, playing=lambda task, make: recorded(make, task).render())
    assert environments.departure.now == "render is asked for"


def test_environments_are_given_in_the_order_in_which_they_were_made() -> None:
    both = lambda task, make: play(task, "a", make=make) + play(task, "b", make=make)  # noqa: E731
    seen, text = kept(playing=both)
    assert again(text, playing=both)[0] == seen
    _, third = again(text, playing=lambda task, make: both(task, make) + play(task, make=make))
    assert third.departure.now == "another environment is made"


@pytest.mark.parametrize("other", [True, 1.0])
def test_an_action_of_another_type_is_another_action(other) -> None:
    _, text = kept(1)
    assert again(text, other)[1].departure.now == f"step({other!r})"


def test_an_action_that_is_not_a_number_is_equal_to_itself() -> None:
    _, text = kept(float("nan"))
    assert again(text, float("nan"))[1].departure is None


def test_a_method_that_is_looked_for_and_not_called_is_there_in_a_replay() -> None:
    def play_if_it_can(task, make):
        env = recorded(make, task)
        assert hasattr(env, "step")
        return env.reset(sides=6)

    seen, text = kept(playing=play_if_it_can)
    assert again(text, playing=play_if_it_can)[0] == seen


def test_an_environment_whose_names_are_ours_answers_for_itself() -> None:
    class Own:
        num_made = "seven"

    def looks(task, make):
        return recorded(make, task).num_made

    _, text = kept(make=Own, playing=looks)
    assert again(text, playing=looks)[0] == "seven"


def test_an_environment_that_could_not_be_built_at_first_is_built_in_a_replay_too() -> None:
    def stubborn(task, make):
        makes = iter([make_none, make])
        with contextlib.suppress(ConnectionError):
            recorded(next(makes), task)
        return recorded(next(makes), task).reset(sides=6)

    def make_none():
        raise ConnectionError("not yet")

    _, text = kept(playing=stubborn)
    assert answers_of(text, place="p").problem == "building it raised ConnectionError"


class Odd(Dice):
    def step(self, action):
        return np.zeros(2), 0.0, False, {}

    last = 0.0


class Raising(Dice):
    def reset(self, *, sides):
        raise KeyError("no dice")


class Long(Dice):
    def step(self, action):
        self.last = 0.0
        return "x" * (LIMIT + 1), 0.0, False, {}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Odd, "step() is no JSON: it holds numpy.ndarray"),
        (Long, f"it has more than {LIMIT:,} characters"),
    ],
)
def test_what_cannot_be_kept_is_named_and_replayed_with_the_environment(make, why) -> None:
    _, text = kept("a", make=make)
    answers = answers_of(text, place="run/1/0/0")
    assert (answers.tracks, answers.problem) == ((), why)
    built = []
    again(text, "a", make=lambda: built.append(1) or make())
    assert built == [1]


def test_an_error_of_the_environment_goes_through_and_is_named() -> None:
    recording = Recording()
    with pytest.raises(KeyError, match="no dice"):
        play(Task(environments=recording), make=Raising)
    assert answers_of(recording.text(), place="p").problem == "reset() raised KeyError"


def test_an_attribute_that_changes_by_itself_is_named() -> None:
    class Clock:
        now = 0

    recording = Recording()
    env, clock = None, Clock()
    env = recorded(lambda: clock, Task(environments=recording))
    assert env.now == 0
    clock.now = 1
    assert env.now == 1
    assert "now changed between two calls" in recording.text()


@pytest.mark.parametrize("break_it", [
    lambda text: text[:-9],
    lambda text: text.replace('"answer"', '"reply"'),
    lambda text: json.dumps([text]),
    lambda text: json.dumps({"environments": [{"seen": 3, "calls": []}]}),
])  # fmt: skip
def test_a_damaged_record_is_refused_by_name(break_it) -> None:
    _, text = kept("a")
    with pytest.raises(DataError, match="what the environment answered in run/1/0/0 is damaged"):
        answers_of(break_it(text), place="run/1/0/0")
