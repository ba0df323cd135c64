"""Renders formulas as MathML, which browsers draw themselves: no script, no network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def inline(writer: Any, node: nodes.math) -> None:  # Any: Sphinx's HTML translator
    """Write a formula inside a line."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    formula = convert(node.astext(), display="block")
    writer.body.append(f'<div style="overflow: auto hidden; padding: 0.3em 0">{formula}</div>')
    raise nodes.SkipNode
