"""A run of a thousand calls is drawn, each below the one that it goes on with."""

from __future__ import annotations

from trinity_studio.view.exchanges import listed


def row(number: int, *, continues: int | None = None) -> dict[str, object]:
    info: dict[str, object] = {"request": f"{number}-0"}
    if continues is not None:
        info["continues"] = f"{continues}-0"
    return {"info": info, "response_text": f"reply {number}"}


def test_a_chain_of_a_thousand_stands_below_each_other() -> None:
    rows = [row(0), *(row(number, continues=number - 1) for number in range(1, 1000))]

    found = listed(rows)

    assert [node.name for _, node in found] == [f"{number}-0" for number in range(1000)]
    assert [depth for depth, _ in found] == [0] + [1] * 999


def test_what_goes_on_with_the_same_is_indented_and_comes_before_the_next_chain() -> None:
    rows = [row(0), row(1, continues=0), row(2, continues=1), row(3, continues=1), row(4)]

    found = [(depth, node.name) for depth, node in listed(rows)]

    assert found == [(0, "0-0"), (1, "1-0"), (2, "2-0"), (2, "3-0"), (0, "4-0")]
