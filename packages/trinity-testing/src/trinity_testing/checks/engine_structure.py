"""What a rollout engine must hold that claims ``structure``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from trinity.common.ports import Structure
from trinity.errors import ModelError

from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks import engine_reference as reference
from trinity_testing.checks.engine_asking import LIMIT_S, TOLERANCE, answer, opened, request

if TYPE_CHECKING:
    from typing import Any

    from trinity.common.ports import Completion
    from trinity.extend.component import Component

__all__ = ["checks"]

_PATTERN = "[ab]{2,4}c"


def holds_to_the_structure(component: Component, context: CheckContext) -> Finding | None:
    """Find an engine that claims structure, and says other texts or untrue log-probabilities."""
    if "structure" not in component.spec.provides:
        raise Skipped("it does not claim structure")
    structure = Structure(kind="regex", text=_PATTERN)
    with opened(component, context) as engine:
        for temperature in (0.0, 1.0, 0.7):
            try:
                replies = answer(engine, n=3, temperature=temperature, structure=structure)
            except ModelError as error:
                if "is not installed" in str(error):
                    raise Skipped(str(error)) from error
                raise
            for reply in replies:
                finding = _odd(reply, temperature=temperature or 1.0)
                if finding:
                    return Finding(f"at temperature {temperature}, {finding}")
        takes_stops = "stop_strings" in component.spec.provides
        finding = _goes_on_behind_a_stop(engine) if takes_stops else None
        return finding or _takes_a_bad_one(engine)


def _odd(reply: Completion, *, temperature: float) -> str:
    said = reference.tokenizer().decode(reply.token_ids, skip_special_tokens=True)
    if not re.fullmatch(_PATTERN, said) or reply.finish_reason != "stop":
        return f"held to {_PATTERN} it said {said!r}, and {reply.finish_reason!r}"
    wanted = reference.logprobs(reference.model(), reply.token_ids, temperature)
    difference = float((torch.tensor(reply.logprobs) - wanted).abs().max())
    if not difference <= TOLERANCE:
        return f"the log-probabilities of {said!r} differ by {difference:.2g} from the model's"
    return ""


def _goes_on_behind_a_stop(engine: Any) -> Finding | None:  # Any: an engine
    structure = Structure(kind="regex", text=_PATTERN + "[ab]{4}")
    for reply in answer(engine, n=3, min_new_tokens=12, stop=("c",), structure=structure):
        if reply.stop_reason != "c":
            said = reference.tokenizer().decode(reply.token_ids, skip_special_tokens=True)
            return Finding(
                f"with min_new_tokens, which does not hold within a structure, and the stop string "
                f"'c' it said {said!r}, ended by {reply.stop_reason!r}"
            )
    return None


def _takes_a_bad_one(engine: Any) -> Finding | None:  # Any: an engine
    try:
        engine.submit(request(structure=Structure(kind="regex", text="("))).result(LIMIT_S)
    except ModelError as error:
        if str(error).startswith("structure"):
            return None
        return Finding(f"a bad structure is refused by a message that does not name it: {error}")
    return Finding("a regular expression that is none, '(', is answered")


checks = (
    Check(
        id="rollout_engine.structure",
        function=holds_to_the_structure,
        remedy="Bar the tokens that lead out of the structure, take log_softmax before that, take "
        "min_new_tokens for 0 beside it, and refuse a bad one by a ModelError that begins with "
        "'structure'; or do not provide it.",
        kinds=frozenset({"rollout_engine"}),
    ),
)
