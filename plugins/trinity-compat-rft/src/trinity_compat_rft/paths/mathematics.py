"""Parse and compare mathematics in a process that can be ended."""

from __future__ import annotations

from typing import Any

__all__ = ["Mathematics"]


class Mathematics:
    """Math-Verify's functions, without their own timers, which work in main threads alone."""

    def __init__(self) -> None:
        self.parse("$1/2$", {})  # what is imported and built on first use takes seconds

    def parse(self, text: str, options: dict[str, Any]) -> list[Any]:  # Any: expressions and texts
        """Return what ``math_verify.parse`` finds in a text."""
        from math_verify import parse  # type: ignore[import-untyped]

        found: list[Any] = parse(text, parsing_timeout=None, **options)
        return found

    def verify(self, gold: Any, target: Any, options: dict[str, Any]) -> bool:
        """Return whether ``math_verify.verify`` takes two parsed answers for equal."""
        from math_verify import verify

        return bool(verify(gold, target, timeout_seconds=None, **options))
