"""What a person finds on the pages: parts with their arguments, problems where they belong."""

from __future__ import annotations

import pytest
import yaml
from trinity_studio.config_registry.config_registry import ConfigEntry
from trinity_studio.studio.arguments import part_named
from trinity_studio.studio.document import Document
from trinity_studio.studio.extensions import shared_paths
from trinity_studio.studio.fields import label_of
from trinity_studio.studio.findings import findings

TASKSET = "buffer.explorer_input.taskset"


def file_of(page) -> dict:
    return yaml.safe_load(page.code[0].value)


def on_page(page, name: str):
    page.radio(key="_page").set_value(name).run()
    assert [one.message for one in page.exception] == []
    return page


def test_a_part_is_put_into_the_file_and_its_arguments_are_drawn_from_its_signature(
    draw_studio,
) -> None:
    page = on_page(draw_studio(), "Parts")
    page.selectbox(key="_kind").set_value("advantage_fn").run()
    page.selectbox(key="_part_of:advantage_fn").set_value("opmd").run()
    page.button(key="_use:algorithm.advantage_fn").click().run()
    page.text_input(key="w:algorithm.advantage_fn_args.tau").set_value("0.5").run()

    algorithm = file_of(on_page(page, "Configuration"))["algorithm"]

    assert algorithm["advantage_fn"] == "opmd"
    assert algorithm["advantage_fn_args"] == {"tau": 0.5}


@pytest.mark.acceptance
def test_another_part_in_its_place_takes_the_arguments_of_the_first_away(draw_studio) -> None:
    algorithm = {"advantage_fn": "opmd", "advantage_fn_args": {"tau": 0.5}}
    page = on_page(draw_studio(Document({"algorithm": algorithm}, is_fresh=False)), "Parts")
    page.selectbox(key="_kind").set_value("advantage_fn").run()
    page.selectbox(key="_part_of:advantage_fn").set_value("grpo").run()
    page.button(key="_use:algorithm.advantage_fn").click().run()

    assert page.session_state["_document"].values == {"algorithm": {"advantage_fn": "grpo"}}


def test_two_settings_that_write_one_key_are_told() -> None:
    entries = [
        ConfigEntry(name=name, draw=print, path=path)
        for name, path in (("rate", "a.lr"), ("own_rate", "a.lr"), ("free", None), ("seed", "seed"))
    ]

    (line,) = shared_paths(entries)

    assert line.startswith("`a.lr` is written by 2 settings: rate, own_rate.")


def test_a_part_that_cannot_be_loaded_says_why() -> None:
    part = part_named("workflow", "my_missing_module.Mine")

    assert "my_missing_module" in part.problem


def test_what_the_check_says_stands_at_the_key_that_it_is_about(draw_studio, told) -> None:
    page = draw_studio()
    page.text_input(key="model_path").set_value("/no/such/model").run()
    page.number_input(key="w:buffer.batch_size").set_value(3).run()

    said = told(page)

    assert [line for line in said if line.startswith("Model (model_path): ")]
    assert [line for line in said if "/no/such/model" in line]


def test_an_unknown_key_of_a_file_is_listed_above_it_and_kept() -> None:
    found = findings("bufer:\n  batch_size: 1\n")

    assert found.problems["bufer"] == ["unknown key. Did you mean 'buffer'?"]


@pytest.mark.acceptance
def test_a_text_that_is_no_yaml_is_told_at_its_key_and_changes_nothing(draw_studio, told) -> None:
    page = draw_studio()
    page.session_state["_mode"], page.session_state["_part"] = "Expert Mode", "Trainer"
    page.session_state["open:algorithm.optimizer"] = True
    page.run()
    page.text_area(key="w:algorithm.optimizer.betas").set_value("[0.9,").run()

    assert [line for line in told(page) if "This is no YAML" in line]
    assert "optimizer" not in file_of(page)["algorithm"]
    assert page.text_area(key="w:algorithm.optimizer.betas").value == "[0.9,"


def test_a_file_that_cannot_be_opened_is_told_and_leaves_the_page_as_it_was(
    draw_studio, tmp_path
) -> None:
    (tmp_path / "broken.yaml").write_text("a: [\n")
    page = draw_studio()
    before = page.code[0].value
    for path, part in {"broken.yaml": "is no YAML", "none.yaml": "cannot be read"}.items():
        page.text_input(key="_file").set_value(str(tmp_path / path)).run()
        pressed(page, "Open")
        assert any(part in one.value for one in page.error), path

    assert page.code[0].value == before


def test_a_file_is_opened_changed_and_saved(draw_studio, tmp_path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("project: ${oc.env:USER,me}  # mine\nbuffer: {batch_size: 2}\n")
    page = opened(draw_studio(), file)
    page.number_input(key="w:buffer.batch_size").set_value(5)
    pressed(page, "Save")  # with what was typed just now

    assert file.read_text() == "project: ${oc.env:USER,me}  # mine\nbuffer: {batch_size: 5}\n"


@pytest.mark.acceptance
def test_a_second_file_is_not_saved_in_place_of_the_first(draw_studio, tmp_path) -> None:
    files = [tmp_path / name for name in ("one.yaml", "two.yaml")]
    for file in files:
        file.write_text(f"name: {file.stem}\n")
    page = opened(opened(draw_studio(), files[0]), files[1])
    pressed(page, "Save")

    assert [yaml.safe_load(file.read_text())["name"] for file in files] == ["one", "two"]
    assert pressed(page, "Begin anew").text_input(key="_save_as").value == ""


def test_a_file_that_another_wrote_is_replaced_only_when_asked_for(draw_studio, tmp_path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("name: mine\n")
    page = opened(draw_studio(), file)
    file.write_text("name: of somebody else\n")
    pressed(page, "Save")

    assert file.read_text() == "name: of somebody else\n"
    pressed(page, "Replace it")
    assert file.read_text() == "name: mine\n"


@pytest.mark.acceptance
def test_beginning_anew_leaves_nothing_of_the_file_before(draw_studio, tmp_path) -> None:
    page = draw_studio()
    fresh = page.code[0].value
    file = tmp_path / "run.yaml"
    file.write_text("model: {model_path: x}\nsynchronizer: {sync_interval: 7}\n")

    assert pressed(opened(page, file), "Begin anew").code[0].value == fresh


GPUS = "cluster: {gpu_per_node: 7}\nbuffer: {train_batch_size: 96}\n"


def test_the_batch_of_a_file_stays_when_the_number_of_gpus_changes(draw_studio) -> None:
    page = draw_studio(Document.read(GPUS, name=""))
    assert page.number_input(key="train_batch_size").value == 96  # 16 of each of 6
    page.number_input(key="w:cluster.gpu_per_node").set_value(5).run()

    assert file_of(page)["buffer"]["train_batch_size"] == 96


@pytest.mark.acceptance
def test_the_batch_of_a_file_can_be_typed_over(draw_studio) -> None:
    page = draw_studio(Document.read(GPUS, name=""))
    page.number_input(key="train_batch_size").set_value(120).run()

    assert file_of(page)["buffer"]["train_batch_size"] == 120


def opened(page, file):
    page.text_input(key="_file").set_value(str(file))
    return pressed(page, "Open")


def pressed(page, label: str):
    next(one for one in page.button if one.label == label).click().run()
    assert [one.message for one in page.exception] == []
    return page


@pytest.mark.acceptance
def test_a_place_that_cannot_be_written_is_told(draw_studio) -> None:
    page = draw_studio()
    page.text_input(key="_save_as").set_value("/no/such/folder/x.yaml").run()
    page.button(key="_save").click().run()

    assert any("cannot be written" in one.value for one in page.error)


def test_a_label_is_read_by_a_person() -> None:
    assert label_of("algorithm.optimizer.lr") == "Learning rate"
    assert label_of("algorithm.kl_loss_fn_args") == "KL loss function arguments"
