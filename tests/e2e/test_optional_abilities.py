"""A part that lacks what is optional is said to before the run, and nothing breaks by it."""

from __future__ import annotations

import pytest
import trinity
from trinity.common.config import load_config
from trinity.runtime.record.result import RunStatus

pytestmark = pytest.mark.slow

TRAINER = '''
from trinity.extend import ComponentSpec, hookimpl
from trinity.trainer.torch_trainer import TorchTrainer


class Closed:
    """Trains, and shows nobody its module."""

    def __init__(self, config, *, model_path, total_steps, seed):
        self._own = TorchTrainer(
            config, model_path=model_path, total_steps=total_steps, seed=seed
        )

    def train_step(self, experiences, *, step):
        return self._own.train_step(experiences, step=step)

    def snapshot(self, *, copy):
        return self._own.snapshot(copy=copy)

    def save(self, directory):
        self._own.save(directory)

    def load(self, directory):
        self._own.load(directory)

    def close(self):
        self._own.close()


@hookimpl
def trinity_trainers():
    provides = frozenset({"ref_logprob"})
    return {"closed": ComponentSpec(f"{__name__}:Closed", provides=provides)}
'''
STORAGE = '''
from trinity.extend import hookimpl


class Stack:
    """Cannot tell how much is in it, and keeps nothing."""

    def __init__(self, config):
        self.rows = []

    def write(self, experiences):
        self.rows += experiences

    def read(self, count, *, timeout_s, min_model_version=0):
        raise StopIteration

    def available(self):
        return len(self.rows)

    def close(self):
        pass


@hookimpl
def trinity_storages():
    return {"stack": f"{__name__}:Stack"}
'''


@pytest.mark.acceptance
def test_a_trainer_that_shares_nothing_trains_and_is_said_to(
    config_dict, write_yaml, plugin_dir, trinity
) -> None:
    config_dict["trainer"] = {"trainer_type": "closed"}
    path, folder = write_yaml(config_dict), plugin_dir(TRAINER)

    ran = trinity("run", "--local", "--config", str(path), "--plugin-dir", str(folder))

    assert ran.code == 0, ran.stderr
    assert "trainer closed does not share its module" in " ".join(ran.stdout.split())


def test_a_storage_that_cannot_count_is_refused_where_the_count_is_needed(
    config_dict, write_yaml, plugin_dir, trinity
) -> None:
    config_dict["mode"] = "train"
    config_dict["buffer"]["trainer_input"] = {
        "experience_buffer": {"name": "rows", "storage_type": "stack"}
    }
    folder = plugin_dir(STORAGE)

    checked = trinity("config", "check", str(write_yaml(config_dict)), "--plugin-dir", str(folder))

    said = " ".join(checked.stdout.split())
    assert checked.code == 1
    assert "storage stack cannot tell how many experiences it holds" in said
    assert "storage stack provides neither 'waiting' nor 'state'" in said


def test_the_same_seed_gives_the_same_numbers_with_a_module_of_its_own(
    config_dict, write_yaml, plugin_dir
) -> None:
    from trinity.extend import get_manager, set_manager

    before = set_manager(get_manager().narrowed(plugin_dirs=[plugin_dir(TRAINER)]))
    try:
        results = []
        for name in ("torch", "closed"):
            config = config_dict | {"name": name, "trainer": {"trainer_type": name}}
            results.append(trinity.run(load_config(write_yaml(config)), local=True))
    finally:
        set_manager(before)

    assert all(result.status is RunStatus.FINISHED for result in results)
    texts = [(r.directory / "history.jsonl").read_text() for r in results]
    assert texts[0] == texts[1]
