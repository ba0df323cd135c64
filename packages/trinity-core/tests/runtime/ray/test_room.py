"""A worker is like the driver's process, and what happens in it is heard."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from trinity.common.config import Config
from trinity.common.ports import GenerationRequest, RunKey
from trinity.errors import PluginError, TrinityError, WorkerLostError
from trinity.extend import PluginManager, Registry, get_manager
from trinity.runtime.error_context import boundary
from trinity.runtime.ray.remote_engine import RemoteEngine
from trinity.runtime.ray.worker import check_plugin_sets
from trinity.runtime.record.rundir import RunDir

pytestmark = pytest.mark.ray


@Registry("workflows", kind="workflow").register_module("held")
class Held:
    """In a module that no other process can import, as a notebook's cell."""

    value = 5


@pytest.fixture(scope="module")
def kept():
    """Return the handles of workers that several tests ask; they are ended after the last test."""
    handles = {}
    yield handles
    for handle in handles.values():
        handle.kill()


@pytest.fixture
def shared_room(worker, kept):
    """Return a worker with a function in its arguments; its process starts once for all tests."""
    if "shared" not in kept:
        kept["shared"] = worker(is_kept=True, join=os.path.join)
    return kept["shared"]


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    """Return the run directory of all workers."""
    return tmp_path_factory.mktemp("workers") / "run"


@pytest.fixture
def worker(ray_cluster, run_directory, monkeypatch):
    """Return a function that starts a worker with a part of ``parts_for_rooms``."""
    from trinity.runtime.ray.worker_handle import start_worker
    from trinity.runtime.ray.worker_spec import WorkerSpec

    monkeypatch.syspath_prepend(Path(__file__).parent)
    started = []

    def start(
        *,
        manager=None,
        part="Shows",
        before_start=None,
        env_vars=None,
        is_kept=False,
        num_threads=1,
        **workflow_args,
    ):
        taskset = {"path": "x", "workflow_args": workflow_args}
        config = Config(
            buffer={"explorer_input": {"taskset": taskset}}, explorer={"env_vars": env_vars or {}}
        )
        worker_spec = WorkerSpec.of(
            config,
            rundir=RunDir(run_directory),
            manager=manager or get_manager(),
            namespace=ray_cluster.namespace,
        )
        if before_start is not None:
            before_start()
        handle = start_worker(
            worker_spec, "shows", f"parts_for_rooms:{part}", num_threads=num_threads
        )
        if not is_kept:
            started.append(handle)
        return handle

    yield start
    for handle in started:
        handle.kill()


@pytest.fixture
def folder(tmp_path):
    """Return a plugin folder with a workflow and its neighbour."""
    path = tmp_path / "my plugins"
    path.mkdir()
    (path / "neighbour.py").write_text("SEVEN = 7\n")
    (path / "mine.py").write_text(
        "from trinity.extend import Registry\n"
        "from neighbour import SEVEN\n\n"
        '@Registry("workflows", kind="workflow").register_module("mine")\n'
        "class Mine:\n    value = SEVEN\n"
    )
    return path


def test_working_directory_search_path_and_level_are_the_drivers(worker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_SOMETHING", "mine")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    about = worker().call("about")
    assert about["directory"] == str(tmp_path)
    assert str(Path(__file__).parent) in about["path"]
    assert about["variables"]["HF_SOMETHING"] == "mine"
    assert "OMP_NUM_THREADS" not in about["variables"]  # Ray would say 1
    assert about["level"] == 20


def test_nothing_heavy_is_imported_by_a_room_that_needs_nothing(worker):
    modules = set(worker().call("about")["modules"])
    heavy = {"torch", "transformers", "datasets", "pandas", "matplotlib", "tensorboard"}
    assert not modules & heavy


@pytest.mark.acceptance
def test_the_variables_of_the_explorer_are_set_before_the_process_starts(worker, tmp_path):
    about = worker(env_vars={"TMPDIR": str(tmp_path), "NUMBER": 3}).call("about")
    assert about["variables"]["TMPDIR"] == str(tmp_path)
    assert about["variables"]["NUMBER"] == "3"


def test_a_class_that_only_this_process_has_is_sent_by_value(shared_room):
    assert shared_room.call("load", "workflow", "held") == (f"{__name__}:Held", 5)


def test_functions_in_workflow_args_arrive(shared_room):
    assert shared_room.call("call_argument", "join", "a", "b") == "a/b"


@pytest.mark.parametrize(
    "change", ["other files", pytest.param("gone", marks=pytest.mark.acceptance)]
)
def test_a_plugin_folder_loads_under_the_same_names_on_every_node(worker, folder, change):
    manager = PluginManager.discover(env={}, plugin_dirs=[folder])
    name = manager.load("workflow", "mine").__module__

    def before_start():  # what another node may look like
        if change == "other files":
            (folder / "neighbour.py").write_text("SEVEN = 8\n")
        if change == "gone":
            shutil.rmtree(folder)

    handle = worker(manager=manager, before_start=before_start)
    assert handle.call("load", "workflow", "mine") == (f"{name}:Mine", 7)
    if change != "gone":
        (folder / "neighbour.py").write_text("SEVEN = 7\n")
        check_plugin_sets([handle.facts()], manager=manager)


def test_equal_plugin_sets_pass_and_another_is_named(shared_room, folder):
    facts = shared_room.facts()
    check_plugin_sets([facts], manager=get_manager())
    here = PluginManager.discover(plugin_dirs=[folder])
    with pytest.raises(PluginError, match=r"on node .* plugin folder module mine \(source"):
        check_plugin_sets([facts], manager=here)


def test_warnings_and_prints_reach_the_log_and_warnings_the_caller(
    shared_room, run_directory, caplog
):
    shared_room.call("say")
    assert "mind the step" in caplog.text
    log = (run_directory / "logs" / "shows.log").read_text()
    assert "WARNING trinity.test: mind the step" in log
    assert "INFO trinity.test: all is well" in log
    assert "INFO stdout: one line, printed" in log
    assert "one warned line" in log


def test_an_error_brings_its_place_and_the_command_that_shows_the_rest(shared_room, run_directory):
    with pytest.raises(TrinityError) as raised, boundary("step 3"):
        shared_room.call("fail")
    text = str(raised.value)
    assert text.startswith("step 3 failed: KeyError: 'no such thing' at ")
    assert "parts_for_rooms.py:" in text
    assert f"trinity log {run_directory} --worker shows has the traceback." in text
    assert "Traceback" in (run_directory / "logs" / "shows.log").read_text()


def test_an_error_that_does_not_pickle_arrives_as_its_text(shared_room):
    with pytest.raises(TrinityError, match="OddError: odd"):
        shared_room.call("fail_oddly")


def test_a_part_that_cannot_be_built_says_so_at_every_call(worker):
    handle = worker(part="Misspelt")
    with pytest.raises(AttributeError, match="Misspelt"):
        handle.facts()
    with pytest.raises(AttributeError, match="Misspelt"):
        handle.call("about")


@pytest.mark.acceptance
def test_a_room_that_is_killed_is_lost(worker):
    handle = worker()
    handle.facts()
    handle.kill()
    with pytest.raises(WorkerLostError, match="shows was lost: it ended or was killed"):
        handle.call("about")


@pytest.mark.acceptance
def test_one_thread_builds_a_room_and_makes_its_calls_and_what_takes_long_aside_holds_no_beat(
    worker,
):
    handle = worker(part="BoundToItsThread")
    assert "build" in handle.facts().seconds
    copying = handle.aside().start("copy_for_long")
    assert [handle.call("step") for _ in range(3)] == [1, 2, 3]
    answer = handle.heartbeat()
    until(lambda: answer() is not None)
    assert str(handle.facts().pid) in answer()
    handle.call("go_on")
    assert copying.result(timeout_s=20)


@pytest.mark.acceptance
def test_who_calls_aside_while_a_room_is_built_waits_and_who_asks_at_once_is_told(worker, tmp_path):
    begun, may_go_on = tmp_path / "begun", tmp_path / "go on"
    handle = worker(part="BuiltForLong", begun=str(begun), may_go_on=str(may_go_on))
    until(begun.exists)

    with pytest.raises(WorkerLostError, match="shows was lost: it is being built"):
        handle.at_once().call("answer")
    aside = handle.aside().start("answer")
    may_go_on.touch()

    assert aside.result(timeout_s=20) == "built"
    assert handle.at_once().call("answer") == "built"


@pytest.mark.acceptance
def test_a_request_that_is_given_up_frees_its_place_in_another_process(worker):
    engine = RemoteEngine(worker(part="HoldsAnEngine", num_threads=4))
    requests = [
        GenerationRequest(prompt_token_ids=(1,), key=RunKey(run=run), max_new_tokens=9)
        for run in range(2)
    ]
    first, second = [engine.submit(request) for request in requests]
    until(lambda: engine._worker.call("num_open") == 2)

    assert first.cancel()
    until(lambda: engine._worker.call("num_open") == 1)
    assert engine.num_open == 1
    engine._worker.call("release")

    with pytest.raises(CancelledError):
        first.result(0)
    assert len(second.result(10)[0].token_ids) == 4
    assert engine.num_open == 0
    engine.close()


def until(is_true):
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)
