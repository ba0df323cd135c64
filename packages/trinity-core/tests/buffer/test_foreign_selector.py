"""An order that a plugin brings has the protocol's three methods, and no more."""

import json

import pytest
from trinity.buffer.file import FileStorage
from trinity.common.config import DataSelectorConfig, ExperienceBufferConfig
from trinity_testing.builders import an_experience
from trinity_testing.fixtures import throwaway_plugin

__all__ = ["throwaway_plugin"]

SOURCE = """
from trinity.extend import hookimpl


class Backwards:
    def __init__(self, num_rows):
        self.num_rows, self.given = num_rows, 0

    def get_indices(self, count):
        start, self.given = self.given, self.given + count
        return [self.num_rows - 1 - n % self.num_rows for n in range(start, self.given)]

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


@hookimpl
def trinity_task_selectors():
    return {"backwards": "backwards_plugin:Backwards"}
"""


@pytest.fixture
def storage(throwaway_plugin, tmp_path):
    throwaway_plugin("backwards", {"backwards_plugin.py": SOURCE})
    order = DataSelectorConfig(selector_type="backwards")
    path = tmp_path / "rows.jsonl"
    FileStorage(ExperienceBufferConfig(), path=path).write(
        [an_experience(task=n) for n in range(4)]
    )
    return lambda: FileStorage(ExperienceBufferConfig(data_selector=order), path=path)


def tasks(experiences):
    return [experience.eid.task for experience in experiences]


def test_a_file_is_read_in_its_order_and_goes_on_from_a_state(storage):
    first, second = storage(), storage()
    assert tasks(first.read(3, timeout_s=0)) == [3, 2, 1]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))

    assert (tasks(second.read(3, timeout_s=0)), second.available()) == ([0], 0)


def test_what_was_not_used_comes_again(storage):
    file = storage()
    file.read(1, timeout_s=0)
    file.put_back(file.read(2, timeout_s=0))

    assert tasks(file.read(3, timeout_s=0)) == [2, 1, 0]


def test_a_place_that_older_runs_noted_is_a_number_of_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    file = FileStorage(ExperienceBufferConfig(), path=path)
    file.write([an_experience(task=n) for n in range(4)])
    file.load_state_dict({"size": path.stat().st_size, "position": 3})

    assert tasks(file.read(2, timeout_s=0)) == [3]
