"""Texts of models and environments on a terminal, where they can write letters and nothing else."""

from __future__ import annotations

# What moves the cursor of a terminal, or turns the order of letters around.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_TURNS = (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_HALVES = range(0xD800, 0xE000)  # of pairs, which no terminal can be sent alone
_CONTROL |= {code: f"\\u{code:04x}" for code in (*_TURNS, *_HALVES)}


def plain(text: str) -> str:
    r"""Return the text with control characters written out.

    >>> plain("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return text.replace("\r", "\n").translate(_CONTROL)


def indented(text: str) -> str:
    """Return the text, each line moved to the right."""
    return "\n".join(f"    {line}" for line in text.split("\n"))
