"""Print how fast algorithms learn: ``python -m trinity_testing.learning [ALGORITHM...]``."""

from __future__ import annotations

import sys

from trinity.errors import ConfigError, TrinityError
from trinity.extend import get_manager

from trinity_testing.learning.curve import LearningCurve, curve_table, learning_curve

__all__ = ["main"]


def main(names: list[str]) -> int:
    """Print a table of the named algorithms, of all without a name; return the exit code.

    It is 1 if one of them fails, or does not reach the goal. One that lacks what nobody provides is
    named below the table; that is an error only where it was asked for.
    """
    manager = get_manager()
    curves: list[LearningCurve] = []
    lines: list[str] = []
    is_bad = False
    for name in names or manager.names("algorithm"):
        try:
            curves.append(learning_curve(name, manager))
        except TrinityError as error:
            lines.append(f"{name}: {error}")
            is_bad |= bool(names) or not isinstance(error, ConfigError)
    sys.stdout.write("\n".join([curve_table(curves), "", *lines]).rstrip() + "\n")
    return int(is_bad or any(curve.steps_to_goal is None for curve in curves))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
