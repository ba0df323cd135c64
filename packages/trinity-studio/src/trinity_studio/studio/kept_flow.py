"""What changes within brackets, entry by entry: the comments of the others stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    IsSame = Callable[[Any, Any], bool]  # Any: of a YAML file

__all__ = ["flow_edits", "flow_text"]

Edit = tuple[int, int, str]  # first character, the one behind the last, what stands there then


def flow_text(value: Any) -> str:  # Any: of a YAML file
    """Return a value as it is written within brackets."""
    said = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6
    )
    return str(said).strip().removeprefix("[").removesuffix("]")


def flow_edits(text: str, node: yaml.Node, old: Any, new: Any, *, is_same: IsSame) -> list[Edit]:
    """Return what changes where; what cannot be changed in parts is written anew.

    Args:
        text: of the file.
        node: what stands there.
        old: what it says.
        new: what it is to say.
        is_same: tells whether two values are.
    """
    edits: list[Edit] | None = None
    if is_same(old, new):
        return []
    if isinstance(node, yaml.SequenceNode) and isinstance(old, list) and isinstance(new, list):
        edits = _of_list(text, node, old, new, is_same=is_same)
    elif isinstance(node, yaml.MappingNode) and isinstance(old, dict) and isinstance(new, dict):
        edits = _of_mapping(text, node, old, new, is_same=is_same)
    if edits is None:
        return [(node.start_mark.index, node.end_mark.index, flow_text(new))]
    return edits


def _of_list(
    text: str, node: yaml.SequenceNode, old: list[Any], new: list[Any], *, is_same: IsSame
) -> list[Edit] | None:
    """Return the edits; None: no entry stays."""
    if len(old) == len(new):
        entries = zip(node.value, old, new, strict=True)
        edits = [flow_edits(text, *entry, is_same=is_same) for entry in entries]
        return [edit for some in edits for edit in some]
    first = _num_shared(old, new, is_same)
    last = _num_shared(old[first:][::-1], new[first:][::-1], is_same)
    if not first + last:
        return None
    come = new[first : len(new) - last]
    return list(_length(text, node, first, len(old) - last, come))


def _of_mapping(
    text: str, node: yaml.MappingNode, old: dict[str, Any], new: dict[str, Any], *, is_same: IsSame
) -> list[Edit] | None:
    """Return the edits; None: it is empty, or a key goes."""
    named = [(value, key.value) for key, value in node.value]
    if not named or any(name not in new for _, name in named):
        return None
    parts = [flow_edits(text, value, old.get(n), new[n], is_same=is_same) for value, n in named]
    edits = [edit for some in parts for edit in some]
    return edits + list(_added(node, {name: new[name] for name in new if name not in old}))


def _length(
    text: str, node: yaml.SequenceNode, first: int, end: int, come: Sequence[Any]
) -> Iterator[Edit]:
    """Give how entries come and go between the first that stay and the last."""
    entries = node.value
    if come and first:
        place = entries[first - 1].end_mark.index
        yield place, place, "".join(f", {flow_text(one)}" for one in come)
    elif come:
        place = entries[0].start_mark.index
        yield place, place, "".join(f"{flow_text(one)}, " for one in come)
    if end > first:
        stop = entries[end].start_mark.index if end < len(entries) else entries[-1].end_mark.index
        if end == len(entries) and text[stop:].lstrip().startswith(","):
            stop = text.index(",", stop) + 1  # the one before it has a comma too
        yield entries[first].start_mark.index, stop, ""


def _added(node: yaml.MappingNode, added: Mapping[str, Any]) -> Iterator[Edit]:
    if added:
        place = node.value[-1][1].end_mark.index
        yield place, place, f", {flow_text(added).removeprefix('{').removesuffix('}')}"


def _num_shared(one: Sequence[Any], other: Sequence[Any], is_same: IsSame) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if not is_same(a, b)), min(len(one), len(other)))
