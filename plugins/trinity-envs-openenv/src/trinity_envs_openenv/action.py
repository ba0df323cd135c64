"""What a reply of the model does: the action that is sent to the environment."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from dataclasses import field as a_field
from typing import Any

from trinity.errors import ConfigError, unknown_name

__all__ = ["ActionRule", "NoActionError"]


class NoActionError(Exception):
    """A reply holds no action; the message tells the model why."""


@dataclass(frozen=True, kw_only=True)
class ActionRule:
    """Makes an action of a reply."""

    field: str = ""  # of the action, which the reply fills; "": the reply is the whole action
    pattern: str = ""  # finds the last part of the reply that counts; "": all of it
    type: str = "text"  # text, integer, number or json
    values: Mapping[str, Any] = a_field(default_factory=dict)  # further fields, always the same

    @classmethod
    def of(cls, given: Any) -> ActionRule:  # Any: of the user
        """Return the rule that ``workflow_args.action`` says.

        Raises:
            ConfigError: it is none.
        """
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"workflow_args.action is {given!r:.80}. Give pairs, such as {{field: message}}."
            )
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                raise ConfigError(unknown_name("entry of workflow_args.action", str(name), known))
        rule = cls(**given)
        rule._check()
        return rule

    def action(self, reply: str) -> dict[str, Any]:
        """Return the action of a reply.

        Raises:
            NoActionError: there is none in it.
        """
        found = _READERS[self.type](self._part(reply))
        if self.field:
            return {**self.values, self.field: found}
        if not isinstance(found, dict):
            raise NoActionError("Your reply is no JSON object.")
        return {**self.values, **found}

    def check_schema(self, schema: Mapping[str, Any], *, where: str) -> None:
        """Refuse a rule whose every action the environment would refuse.

        Args:
            schema: the JSON schema of the environment's actions.
            where: the server, for the message.

        Raises:
            ConfigError: a field is unknown there, or one is needed that nothing fills.
        """
        known = schema.get("properties")
        if not isinstance(known, Mapping) or not known:
            return  # it takes anything, or does not say what
        given = [*([self.field] if self.field else []), *self.values]
        is_open = bool(schema.get("additionalProperties"))
        for name in given:
            if name not in known and not is_open:
                said = unknown_name(f"field of actions at {where}", str(name), known)
                raise ConfigError(f"workflow_args.action: {said}")
        lacking = [name for name in schema.get("required", ()) if name not in given]
        if self.field and lacking:
            raise ConfigError(
                f"workflow_args.action: actions at {where} need {', '.join(lacking)} too. Give it "
                f"in action.values, or leave action.field out and let the model write JSON "
                f"(action: {{type: json}})."
            )

    def _part(self, reply: str) -> str:
        if not self.pattern:
            return reply.strip()
        matches = list(re.finditer(self.pattern, reply, re.DOTALL))
        if not matches:
            raise NoActionError("Your reply holds no action in the form that was asked for.")
        return str(matches[-1][1 if matches[-1].re.groups else 0] or "").strip()

    def _check(self) -> None:
        if self.type not in _READERS:
            known = ", ".join(_READERS)
            raise ConfigError(f"workflow_args.action.type is {self.type!r}. Say one of {known}.")
        if not self.field and self.type != "json":
            raise ConfigError(
                "workflow_args.action lacks field: the field of the action that a reply fills. "
                "Without it replies must be whole actions: {type: json}."
            )
        if not isinstance(self.values, Mapping):
            raise ConfigError(f"workflow_args.action.values is {self.values!r:.80}. Give pairs.")
        try:
            re.compile(self.pattern)
        except (re.error, TypeError) as error:
            raise ConfigError(
                f"workflow_args.action.pattern {self.pattern!r} is no regular expression: {error}."
            ) from error


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise NoActionError(f"{text[:40]!r} is no whole number.") from None


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise NoActionError(f"{text[:40]!r} is no number.")
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NoActionError("Your reply is no JSON.") from None


_READERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "integer": _integer,
    "number": _number,
    "json": _json,
}
