"""003: the page that makes configurations: its settings, its manager, its two modes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trinity_studio.studio
import yaml
from streamlit.testing.v1 import AppTest
from trinity.extend import PluginManager, get_manager, set_manager
from trinity_studio.config_registry.config_registry import CONFIG_GENERATORS
from typer.testing import CliRunner

PAGE = Path(trinity_studio.studio.__file__).with_name("page.py")
REGISTRY = "trinity.manager.config_registry"
MODULES = [
    f"{REGISTRY}.{part}_config_manager" for part in ("buffer", "explorer", "model", "trainer")
]
PARTS = ("Model", "Buffer", "Explorer and Synchronizer", "Trainer")

# What a third party writes: the function of the published page under another name.
SETTINGS = """
import streamlit as st
from trinity.manager.config_registry.config_registry import CONFIG_GENERATORS


@CONFIG_GENERATORS.register_config(
    default_value=96,
    visible=lambda: st.session_state["trainer_gpu_num"] > 0,
    other_configs={"_mine_per_gpu": 16},
)
def set_my_key(**kwargs):
    key = kwargs.get("key")
    gpus = st.session_state["trainer_gpu_num"]
    st.session_state["_got_key"] = key
    st.session_state[key] = st.session_state["_mine_per_gpu"] * gpus

    def on_change():
        st.session_state["_mine_per_gpu"] = max(st.session_state[key] // gpus, 1)

    st.number_input(
        "Mine", min_value=gpus, step=gpus, help="as many for each", on_change=on_change, **kwargs
    )
"""
CHECK = """

@CONFIG_GENERATORS.register_check()
def check_my_key(unfinished_fields: set, key: str):
    st.session_state["_handed"] = (unfinished_fields, key)
    if st.session_state[key] > 100:
        unfinished_fields.add(key)
        st.warning(f"{key} is more than 100")
"""
PLUGIN = """
from trinity.extend import hookimpl

@hookimpl
def trinity_config_generators():
    return {f"{__name__}.settings": "Buffer"}
"""


@pytest.fixture(autouse=True)
def _settings_of_nobody_else() -> Iterator[None]:
    for module in MODULES:
        importlib.import_module(module)
    entries, checks = dict(CONFIG_GENERATORS._entries), dict(CONFIG_GENERATORS._checks)
    own = {k: one for k, one in entries.items() if one.draw.__module__.startswith("trinity_")}
    CONFIG_GENERATORS._entries = own
    yield
    CONFIG_GENERATORS._entries, CONFIG_GENERATORS._checks = entries, checks


@pytest.fixture
def with_settings(tmp_path) -> Iterator[Callable[[str], None]]:
    """Return a function that puts a module of settings, and the plugin that names it, in use."""
    before = get_manager()

    def put(source: str) -> None:
        folder = tmp_path / "plugins" / "mine"
        folder.mkdir(parents=True)
        (folder / "settings.py").write_text(source)
        (folder / "__init__.py").write_text(PLUGIN)
        set_manager(PluginManager.discover(env={}, plugin_dirs=[tmp_path / "plugins"]))

    yield put
    set_manager(before)


def the_page() -> AppTest:
    return AppTest.from_file(str(PAGE), default_timeout=60).run()


def drawn(page: AppTest) -> AppTest:
    assert [(one.message, one.stack_trace) for one in page.exception] == []
    return page


def in_part(page: AppTest, name: str) -> AppTest:
    page.segmented_control(key="_mode").set_value("Expert Mode").run()
    return drawn(page.segmented_control(key="_part").set_value(name).run())


def with_trainer_gpus(page: AppTest, count: int) -> AppTest:
    """Give the page GPUs: one for the engine, the others for the trainer."""
    return page.number_input(key="w:cluster.gpu_per_node").set_value(count + 1).run()


def test_P087_every_page_is_drawn_without_an_exception() -> None:
    page = drawn(the_page())
    for part in (*PARTS, "All Others"):
        in_part(page, part)
    for name in ("Parts", "Runs"):
        assert drawn(page.radio(key="_page").set_value(name).run()).header[0].value == name


@pytest.mark.parametrize("module", MODULES)
def test_P088_the_registries_of_settings_are_importable_where_they_were_published(module) -> None:
    found = importlib.import_module(module)

    names = [name for name in found.__all__ if name.startswith("set_")]
    assert names
    assert all(name.removeprefix("set_") in CONFIG_GENERATORS for name in names)


def test_P088_without_the_studio_the_line_that_installs_it_is_said(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("trinity.manager")]:
        monkeypatch.delitem(sys.modules, name)
    before = set_manager(get_manager().narrowed(disabled=["studio"]))
    try:
        with pytest.raises(ImportError, match=r"Run: python -m pip install trinity-studio "):
            importlib.import_module(MODULES[0])
    finally:
        set_manager(before)


def test_P089_a_setting_of_a_plugin_gets_its_key_its_default_and_its_other_keys(
    with_settings,
) -> None:
    with_settings(SETTINGS)
    page = in_part(with_trainer_gpus(the_page(), 6), "Buffer")

    assert page.number_input(key="my_key").value == 96
    state = page.session_state
    assert (state["_got_key"], state["my_key"], state["_mine_per_gpu"]) == ("my_key", 96, 16)


def test_P089_a_setting_is_hidden_while_its_condition_does_not_hold(with_settings) -> None:
    with_settings(SETTINGS)
    page = in_part(the_page(), "Buffer")

    assert "my_key" not in [one.key for one in page.number_input]
    assert page.session_state["my_key"] == 96


def test_P090_a_check_gets_both_keywords_and_what_it_adds_is_unfinished(with_settings) -> None:
    with_settings(SETTINGS + CHECK)
    page = in_part(with_trainer_gpus(the_page(), 6), "Buffer")
    page.number_input(key="my_key").set_value(120).run()

    assert "my_key is more than 100" in [one.value for one in page.warning]
    assert page.session_state["_handed"] == ({"my_key"}, "my_key")


def test_P091_the_train_batch_size_begins_with_96_and_is_a_multiple_of_the_gpus() -> None:
    page = with_trainer_gpus(the_page(), 6)
    assert page.number_input(key="train_batch_size").value == 96

    drawn(page.number_input(key="train_batch_size").set_value(95).run())

    assert page.number_input(key="train_batch_size").value == 90
    assert page.session_state["_train_batch_size_per_gpu"] == 15


def test_P091_without_gpus_for_the_trainer_it_is_hidden() -> None:
    assert "train_batch_size" not in [one.key for one in the_page().number_input]


def a_check_at_95() -> None:
    import streamlit as st
    from trinity.manager.config_registry.buffer_config_manager import check_train_batch_size

    st.session_state["trainer_gpu_num"], st.session_state["train_batch_size"] = 6, 95
    st.session_state["unfinished"] = set()
    check_train_batch_size(unfinished_fields=st.session_state["unfinished"], key="train_batch_size")


def test_P091_the_check_of_95_on_six_gpus_warns_and_adds_the_key() -> None:
    page = AppTest.from_function(a_check_at_95).run()

    assert page.session_state["unfinished"] == {"train_batch_size"}
    assert next(one.value for one in page.warning).endswith("so it is a multiple of 6.")


def a_page_of_mine() -> None:
    import streamlit as st
    from trinity.manager.config_manager import ConfigManager
    from trinity.manager.config_registry.config_registry import CONFIG_GENERATORS

    @CONFIG_GENERATORS.register_config(default_value=7)
    def set_my_steps(**kwargs):
        st.number_input("My Steps", min_value=1, **kwargs)

    class MyManager(ConfigManager):
        def _expert_buffer_part(self):
            self.get_configs("total_epochs", "train_batch_size", "my_steps")

        def _gen_buffer_config(self):
            return {"total_steps": st.session_state["my_steps"]}

    MyManager().draw()


def test_P092_a_subclass_of_the_manager_shows_and_writes_a_key_of_its_own() -> None:
    page = AppTest.from_function(a_page_of_mine, default_timeout=60).run()
    in_part(page, "Buffer").number_input(key="my_steps").set_value(12).run()

    assert yaml.safe_load(page.code[0].value)["buffer"]["total_steps"] == 12
    assert "total_epochs" in [one.key for one in page.number_input]


def test_P093_both_modes_have_the_printed_headings() -> None:
    page = the_page()
    assert [one.value for one in page.header][:2] == ["Essential Configs", "Important Configs"]

    assert [in_part(page, part).header[0].value for part in PARTS] == list(PARTS)


def test_P150_typing_into_the_field_changes_the_share_of_each_gpu(with_settings) -> None:
    with_settings(SETTINGS)
    page = in_part(with_trainer_gpus(the_page(), 6), "Buffer")

    drawn(page.number_input(key="my_key").set_value(150).run())

    assert page.session_state["_mine_per_gpu"] == 25
    assert page.number_input(key="my_key").min == 6
    assert page.number_input(key="my_key").help == "as many for each"


def test_P150_the_function_under_its_published_name_takes_the_place_of_ours(with_settings) -> None:
    with_settings(SETTINGS.replace("my_key", "train_batch_size").replace("_mine_per", "_own_per"))
    page = with_trainer_gpus(the_page(), 6)

    drawn(page.number_input(key="train_batch_size").set_value(150).run())

    assert page.session_state["_own_per_gpu"] == 25
    assert yaml.safe_load(page.code[0].value)["buffer"]["train_batch_size"] == 150


def test_P151_what_is_written_passes_the_check_and_both_batches_mean_what_they_say(
    tiny_model, rows, tmp_path
) -> None:
    page = with_trainer_gpus(the_page(), 6)
    tasks = "w:buffer.explorer_input.taskset"
    page.text_input(key="model_path").set_value(str(tiny_model))
    page.text_input(key=f"{tasks}.path").set_value(str(rows))
    page.text_input(key=f"{tasks}.format.prompt_key").set_value("question")
    page.text_input(key=f"{tasks}.format.response_key").set_value("answer")
    page.number_input(key="w:model.max_model_len").set_value(96).run()
    text = drawn(page).code[0].value
    (tmp_path / "made.yaml").write_text(text)

    said = CliRunner().invoke(_command_line(), ["config", "check", str(tmp_path / "made.yaml")])

    assert f"{tmp_path / 'made.yaml'}: ok" in said.output
    buffer = yaml.safe_load(text)["buffer"]
    assert buffer["train_batch_size"] == 96  # experiences of a train step
    assert buffer["batch_size"] == 12  # tasks of an explore step: 96 experiences, 8 runs of each


def _command_line():
    from trinity.cli.main import app

    return app
