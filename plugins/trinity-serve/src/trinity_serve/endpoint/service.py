"""What all requests of a server share: the keys, the models' names, how many are open."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity_serve.endpoint.fields import Refusal, bad_field, text
from trinity_serve.endpoint.keys import KeyRing
from trinity_serve.endpoint.visitors import NO_KEY, Visitors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity_serve.endpoint.chat import ChatCompletion
    from trinity_serve.endpoint.keys import Entry
    from trinity_serve.endpoint.session import Session

logger = logging.getLogger("trinity.endpoint")

_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_AGENT_HEADER = "x-trinity-agent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Which model a request asks, and on whose behalf."""

    session: Session
    entry: Entry
    agent: str
    name: str  # of the model, as it was asked for
    ignored: set[str]  # fields that no template reads; each is named once

    def template_reads(self, name: str) -> bool:
        """Return whether the chat template reads a field; one that it does not is told once."""
        if self.session.model.chat_format.reads(name):
            return True
        if name not in self.ignored:
            self.ignored.add(name)
            logger.info(
                "the endpoint ignores the field %r: the chat template does not read it", name
            )
        return False

    def decode(self, token: int) -> str:
        """Return the text of a token."""
        return self.session.model.chat_format.decode([token], skip_special_tokens=False)


class EndpointService:
    """The state of a server.

    Args:
        logs_requests: whether each request is a line of the log.
        api_key: one more key, for callers on this machine; see ``Visitors``.
    """

    def __init__(self, *, logs_requests: bool = False, api_key: str = NO_KEY) -> None:
        self.keys = KeyRing()
        self.visitors = Visitors(api_key)
        self.logs_requests = logs_requests
        self.num_open = 0  # requests that are being answered
        self._ignored: set[str] = set()

    def entry(self, key: str, *, client: str = "") -> Entry:
        """Return what a key stands for.

        Args:
            key: that was shown.
            client: the address that the call came from.

        Raises:
            Refusal: nothing, or its run is over.
        """
        visitor = self.visitors.entry(key, client=client, keys=self.keys)
        return visitor or self.keys.find(key)

    def names(self, entry: Entry) -> list[str]:
        """Return the models that a key may ask: the run's own, its adapters, those beside it."""
        model = entry.session.model
        adapters = model.settings.adapters if not model.settings.adapter else ()
        return list(dict.fromkeys([model.model_path, model.model_name, *adapters, *model.beside]))

    def target(
        self, body: Mapping[str, Any], *, entry: Entry, headers: Mapping[str, str]
    ) -> Target:
        """Return the model that a body names, with the label of who asks.

        Raises:
            Refusal: no model has the name.
        """
        asked = text(body, "model")
        if asked is None:
            raise bad_field("model", f"is missing; give {self.names(entry)[0]!r}.")
        names = self.names(entry)
        base, _, label = asked.rpartition(":")
        if asked in names:
            base, label = asked, headers.get(_AGENT_HEADER, "")
        elif base not in names:
            raise Refusal(
                404,
                f"there is no model {asked[:80]!r}; known: {', '.join(names)}.",
                code="model_not_found",
                param="model",
            )
        if label and not _LABEL.match(label):
            raise bad_field(
                "model", f"has the label {label[:80]!r}; use up to 64 of A-Z a-z 0-9 _ . and -."
            )
        model = entry.session.model
        if base in {model.model_path, model.model_name}:
            pass
        elif base in model.settings.adapters:
            entry = entry.session.adapter(base, entry=entry) or entry
        else:
            entry = entry.session.beside(base) or entry
        return Target(
            session=entry.session,
            entry=entry,
            agent=label or entry.agent,
            name=asked,
            ignored=self._ignored,
        )

    def note(self, target: Target, served: ChatCompletion) -> None:
        """Write a line about each reply of a call, where that is wanted."""
        if not self.logs_requests:
            return
        for reply in served.replies:
            info = reply.info
            going_on = f", continues {info['continues']}" if "continues" in info else ""
            broken = f", chain broken: {info['chain_broken']}" if "chain_broken" in info else ""
            logger.info(
                "run %s: call %s of %s by %s: %d prompt tokens, %d sampled, %s%s%s",
                *(served.run, reply.name, target.name, target.agent or "an agent"),
                *(served.num_prompt_tokens, reply.num_sampled, reply.finish_reason),
                *(going_on, broken),
            )

    def note_refused(self, entry: Entry, refusal: Refusal) -> None:
        """Write a line about a call that is not answered, where that is wanted."""
        if self.logs_requests:
            run = entry.session.model.run_id
            logger.info("run %s: refused a call, %d: %s", run, refusal.status, refusal)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request as open."""
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1
