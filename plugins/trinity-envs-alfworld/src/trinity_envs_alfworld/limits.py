"""Bound what a game may say, how long it may take to say it, and what its commands fill in.

textworld makes each text of a game by rules that may call each other without an end, and hands the
commands to ``str.format``, which reads attributes and pads to any width. Here these functions of
its modules are replaced in this process; the texts of games within the limits stay as they are.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

from trinity.errors import BadTaskError, PluginError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["check_observation", "install", "wrong_text"]

MAX_CHARACTERS = 50_000  # of an observation; a room of 60 receptacles shows 1,800
MAX_COMMAND = 1_000  # characters of a command; a published one has 60
MAX_STEPS = 100_000  # of the making of a text; one of a room of 60 receptacles takes 2,700
STEPS_OF_SYMBOL = 10  # what a symbol costs, in places of a search for things


def install(textgen: Any, logic: Any) -> None:  # Any: attributes of the modules are set
    """Let this process of textworld refuse texts without an end, and formats in commands.

    Raises:
        PluginError: this textworld works otherwise, so that nothing could be promised.
    """
    if hasattr(textgen, "allowance"):
        return
    grammar, state = textgen.ContextSensitiveGrammar, logic.PddlState
    try:
        derive, replace, search = grammar.derive, grammar.replace, state._all_applicable_assignments
        evaluate, action = textgen.EvalSymbol.derive, logic.textworld.logic.Action
        format_command = action.format_command
    except AttributeError as error:
        raise PluginError(
            f"this textworld makes its texts in another way ({error}), so they have no bound."
        ) from error
    allowance = textgen.allowance = _Allowance()

    def derived(self: Any, start: str, context: Mapping[str, Any]) -> str:
        allowance.begin(start)
        text: str = derive(self, start, context)
        allowance.take(characters=len(text) - allowance.characters)
        return text

    def replaced(self: Any, symbol: Any) -> Any:
        symbols = replace(self, symbol)
        texts = (one.symbol for one in symbols if isinstance(one, textgen.TerminalSymbol))
        allowance.take(steps=STEPS_OF_SYMBOL * len(symbols), characters=sum(map(len, texts)))
        return symbols

    def evaluated(self: Any, context: Any = None) -> Any:
        symbols = evaluate(self, context)
        allowance.take(characters=len(str(symbols[0])))
        return symbols

    def searched(self: Any, *place: Any) -> Any:
        allowance.take(steps=1)
        return search(self, *place)

    def formatted(self: Any, mapping: Mapping[str, str]) -> Any:
        _check_command(self.command_template, mapping)
        return format_command(self, mapping)

    grammar.derive, grammar.replace, textgen.EvalSymbol.derive = derived, replaced, evaluated
    state._all_applicable_assignments = searched
    action.format_command = formatted


def check_observation(text: str, commands: Sequence[str]) -> None:
    """Refuse what is too much to show to a model, or no text.

    Raises:
        BadTaskError: the game says it.
    """
    num_characters = len(text) + sum(map(len, commands)) + len(commands)
    if num_characters > MAX_CHARACTERS:
        raise BadTaskError(
            f"it shows {num_characters:,} characters at once, more than {MAX_CHARACTERS:,}; no "
            f"published game comes near."
        )
    wrong = wrong_text("\n".join((text, *commands)))
    if wrong:
        raise BadTaskError(f"what it shows {wrong}.")


def wrong_text(value: object) -> str:
    r"""Return in words why a value is no text; an empty string: it is one.

    >>> wrong_text("a mug"), wrong_text(["a mug"]), wrong_text("a \ud800")
    ('', 'is no text but a list', 'holds \\ud800, half of a character')
    """
    if not isinstance(value, str):
        return f"is no text but a {type(value).__name__}"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"holds {ascii(value[error.start])[1:-1]}, half of a character"
    return ""


class _Allowance:
    """What the text that is being made may still take."""

    def begin(self, start: str) -> None:
        self._start, self.steps, self.characters = start, 0, 0

    def take(self, *, steps: int = 0, characters: int = 0) -> None:
        self.steps += steps
        self.characters += characters
        if self.steps > MAX_STEPS:
            wrong = f"comes to no end: {MAX_STEPS:,} steps were taken"
        elif self.characters > MAX_CHARACTERS:
            wrong = f"has more than {MAX_CHARACTERS:,} characters"
        else:
            return
        raise BadTaskError(f"its text {self._start:.40} {wrong}; no published game comes near.")


def _check_command(template: str, mapping: Mapping[str, str]) -> None:
    """Refuse a command that is endless, or has braces around anything but the name of a thing.

    Raises:
        BadTaskError: it is.
    """
    num_characters = len(template)
    if "{" in template or "}" in template:
        try:
            parts = list(string.Formatter().parse(template))
        except ValueError:  # a brace alone
            parts = [("", "", "", None)]
        for _, name, width, conversion in parts:
            if name is None:
                continue
            if width or conversion or not (name.isidentifier() and name in mapping):
                raise BadTaskError(
                    f"its command {template:.80} has braces around something that is no name of a "
                    f"thing. Nothing was filled in."
                )
            num_characters += len(mapping[name])
    if num_characters > MAX_COMMAND:
        raise BadTaskError(
            f"its command {template:.40}... has more than {MAX_COMMAND:,} characters; no "
            f"published game comes near."
        )
