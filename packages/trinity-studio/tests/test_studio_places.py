"""Fields stay what they are in the browser: one made anew there loses what is typed into it."""

from __future__ import annotations

import pytest
from trinity_studio.studio.document import Document

GIVEN = {"model": {"model_path": "/no/such/model"}, "cluster": {"gpu_per_node": 2}}


def places_of(node, place: tuple[int, ...] = ()) -> dict[str, tuple[int, ...]]:
    """Return where the fields and drawers stand: numbers among siblings, by key or identity."""
    drawer = getattr(getattr(node, "proto", None), "expandable", None)
    name = getattr(drawer, "id", "") or getattr(node, "key", None)
    found = {name: place} if name else {}
    for number, child in getattr(node, "children", {}).items():
        found |= places_of(child, (*place, number))
    return found


@pytest.mark.acceptance
def test_what_is_told_of_a_field_moves_no_other(draw_studio, told) -> None:
    page = draw_studio()
    before = places_of(page.main)
    page.text_input(key="model_path").set_value("/no/such/model").run()
    page.number_input(key="w:model.max_model_len").set_value(1).run()
    page.number_input(key="w:model.max_response_tokens").set_value(9).run()
    after = places_of(page.main)

    assert len(told(page)) > 2
    assert len(before) > 30
    assert after == before


def test_a_setting_that_appears_moves_no_other(draw_studio) -> None:
    page = draw_studio()
    before = places_of(page.main)
    assert "train_batch_size" not in before
    page.number_input(key="w:cluster.gpu_per_node").set_value(2).run()
    after = places_of(page.main)

    assert after.pop("train_batch_size")
    assert after == before


def test_a_drawer_stays_the_same_as_its_keys_are_given(draw_studio, told) -> None:
    page = draw_studio(Document({"algorithm": {"optimizer": {}}}), is_open=True)
    page.session_state["_mode"], page.session_state["_part"] = "Expert Mode", "Trainer"
    before = places_of(page.run().main)
    page.text_input(key="w:algorithm.optimizer.lr").set_value("1").run()
    page.text_input(key="w:algorithm.optimizer.min_lr_ratio").set_value("no number").run()

    assert any(line.startswith("Min learning rate ratio ") for line in told(page))
    assert places_of(page.main) == before


@pytest.mark.acceptance
def test_a_batch_that_the_gpus_cannot_share_becomes_what_they_can(draw_studio) -> None:
    page = draw_studio()
    page.number_input(key="w:cluster.gpu_per_node").set_value(7).run()
    page.number_input(key="train_batch_size").set_value(100).run()

    assert page.number_input(key="train_batch_size").value == 96  # 16 of each of 6
    assert page.session_state["_document"].get("buffer.train_batch_size") == 96
    page.number_input(key="w:cluster.gpu_per_node").set_value(6).run()
    assert page.number_input(key="train_batch_size").value == 80  # 16 of each of 5


def test_a_value_whose_callback_was_cut_short_is_taken_over(draw_studio) -> None:
    page = draw_studio()
    key = "w:buffer.explorer_input.taskset.format.prompt_key"
    page.session_state[key] = "asked"  # as Streamlit leaves it, with nobody called
    page.run()

    assert page.text_input(key=key).value == "asked"
    taskset = page.session_state["_document"].get("buffer.explorer_input.taskset")
    assert taskset["format"] == {"prompt_key": "asked"}
