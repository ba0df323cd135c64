"""Follow each row from where it is written to where it is trained, by a digest of what it holds.

    pipeline --writing()--> storage --AuditedSource.read--> strategy --sampled()--> trainer

A row *waits* in the storage, is *held* by the strategy, or is *in hand* of the trainer. One that
disappears between two of these was dropped, and has a reason: it is too old, or the strategy counts
it in a metric ``dropped...``, ``filtered...`` or ``skipped...``.
"""

from __future__ import annotations

import threading
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.runtime.audit import Audit

REASONS = ("dropped", "filtered", "skipped")  # metrics of a strategy that count rows
MOST_KNOWN = 20_000  # rows of a storage that may give them again
_ON_THE_WAY = ["storage", "workflow", "experience_operator", "advantage_fn"]


class RowDigest(NamedTuple):
    """What a row holds, in parts: some of them may change on some part of the way."""

    sampled: int  # tokens and log-probabilities
    reward: str  # as text: nan is like itself
    mask: int
    advantages: int

    @classmethod
    def of(cls, row: Experience) -> RowDigest:
        """Return the digest of a row as it is now."""
        return cls(
            _crc(row.logprobs, _crc(row.tokens, row.prompt_length)),
            "" if row.reward is None else repr(float(row.reward)),
            _crc(row.action_mask),
            _crc(row.advantages),
        )

    def difference(self, other: RowDigest) -> str:
        """Return what differs, in words; empty: nothing."""
        words = ("tokens or log-probabilities", "the reward", "the mask", "the advantages")
        pairs = zip(words, self, other, strict=True)
        return " and ".join(word for word, one, two in pairs if one != two)


def _crc(tensor: Tensor | None, start: int = 0) -> int:
    if tensor is None:
        return start
    try:
        return zlib.crc32(tensor.contiguous().numpy(), start)
    except (TypeError, RuntimeError):  # it has a gradient, is in bfloat16 or on a GPU
        return zlib.crc32(tensor.detach().cpu().double().numpy(), start)


class RowAudit:
    """Where the rows of a stage are; the explorer's thread writes, the loop's does the rest.

    Args:
        audit: is told what is found.
        num_there: how many wait; None: the storage does not say, or gives rows again.
        knows_all: whether all that is read was written by this process, since it began.
        is_newest: whether each rollout begins with the newest weights, and ends before newer ones.
    """

    def __init__(
        self,
        audit: Audit,
        *,
        num_there: Callable[[], int] | None,
        knows_all: bool,
        is_newest: bool,
    ) -> None:
        self._audit, self._num_there = audit, num_there
        self.knows_all, self._is_newest = knows_all, is_newest
        self._lock = threading.Lock()  # guards the rows that wait
        self._num_writing = 0
        self._waiting: dict[str, list[tuple[RowDigest, int]]] = {}  # with their policy versions
        self._held: dict[str, list[RowDigest]] = {}
        self._num_excused = 0  # of those that the strategy read and dropped
        self._in_hand: list[tuple[Experience, RowDigest]] = []
        self._before: dict[str, RowDigest] = {}  # of the step that the pipeline has

    def processed(self, kind: str, rows: Sequence[Experience]) -> None:
        """Look at what the parts of a kind did to the rows of a step; "": nobody has had them."""
        before, self._before = self._before, {row.eid.uid: RowDigest.of(row) for row in rows}
        for uid, now in self._before.items() if kind else ():
            old = before.get(uid, now)._replace(mask=now.mask, advantages=now.advantages)
            if kind == "experience_operator":  # it may change what is taught
                old = old._replace(reward=now.reward)
            self._tell_change([kind], uid, old, now, f"in the {kind}")

    @contextmanager
    def writing(self, rows: Sequence[Experience]) -> Iterator[None]:
        """Note rows that the block writes."""
        audit, odd = self._audit, ""
        with self._lock:
            self._num_writing += 1
            for row in rows:
                version = row.info.get("model_version")
                self._waiting.setdefault(row.eid.uid, []).append((RowDigest.of(row), version or 0))
                is_older = self._is_newest and isinstance(version, int) and version < audit.synced
                if is_older or (isinstance(version, int) and version > audit.step):
                    odd = f"experience {row.eid} says that policy version {version} sampled it"
        if odd:
            message = f"{odd}, and the engines have version {audit.synced}"
            kinds = ["rollout_engine", "workflow", "experience_operator", "advantage_fn"]
            kinds += ["sync_method", "trainer"]
            audit.found("versions", kinds, message)
        try:
            yield
        finally:
            with self._lock:
                self._num_writing -= 1

    def read(self, rows: Sequence[Experience], *, min_model_version: int) -> None:
        """Compare what was read with what was written."""
        with self._lock:
            read = [(row.eid.uid, *self._taken(row)) for row in rows]
            if min_model_version > 0:
                self._forget_older(min_model_version)
            while self._num_there is None and len(self._waiting) > MOST_KNOWN:
                del self._waiting[next(iter(self._waiting))]
            lost = self._num_lost()
        for uid, old, now in read:
            if old is not None:
                self._tell_change(_ON_THE_WAY, uid, old, now, "between its write and its read")
            elif self.knows_all:
                message = f"it gave experience {uid}, which is not one that waited"
                self._audit.found("rows", ["storage"], message)
        self._tell_lost(lost)

    def put_back(self, rows: Sequence[Experience]) -> None:
        """Note that rows that were read wait again."""
        with self._lock:
            for row in rows:
                self._held.pop(row.eid.uid, None)
                entry = RowDigest.of(row), row.info.get("model_version") or 0
                self._waiting.setdefault(row.eid.uid, []).append(entry)

    def sampled(
        self, rows: Sequence[Experience], metrics: Metrics, state_dict: Callable[[], Any]
    ) -> None:
        """Compare what the strategy gives with what it read; in its state, it may keep some."""
        for row, before in self._in_hand:
            kinds, when = ["sample_strategy", *_ON_THE_WAY], "after it was trained"
            self._tell_change(kinds, row.eid.uid, before, RowDigest.of(row), when)
        self._in_hand = [(row, RowDigest.of(row)) for row in rows]
        for row, now in self._in_hand:
            uid, entries = row.eid.uid, self._held.get(row.eid.uid)
            if entries:
                old = entries.pop(0)
                self._tell_change(["sample_strategy"], uid, old, now, "in the sample strategy")
                if not entries:
                    del self._held[uid]
            elif self.knows_all:
                message = f"it gave experience {uid}, which it had not read, or had given before"
                self._audit.found("rows", ["sample_strategy"], message)
        names = [name for name in metrics if name.rpartition("/")[2].startswith(REASONS)]
        self._num_excused += int(sum(metrics[name] for name in names))
        if self._held and not state_dict():
            self._check_held()

    def trained(self, num_tokens: float | None) -> None:
        """Look whether the trainer left its batch as it was, and trained all of it.

        Args:
            num_tokens: of the rows that it trained; None: it does not say.
        """
        rows = [row for row, _ in self._in_hand]
        given = sum(len(row.tokens) for row in rows)
        # One that computes the advantages itself may leave rows out; pairs share their prompts.
        is_whole = all(row.advantages is not None and row.chosen is None for row in rows)
        if is_whole and num_tokens is not None and num_tokens != given:
            message = f"it trained rows of {num_tokens:.0f} tokens, and was given {given}"
            self._audit.found("rows", ["trainer"], message)
        for place, (row, before) in enumerate(self._in_hand):
            now = RowDigest.of(row)  # one that computes advantages may write them, and the mask
            old = before._replace(mask=now.mask, advantages=now.advantages)
            self._tell_change(["trainer"], row.eid.uid, old, now, "in the train step")
            self._in_hand[place] = row, now

    def finish(self) -> None:
        """Look for what nobody will read any more: the run is over."""
        with self._lock:
            lost = self._num_lost()
        self._tell_lost(lost)
        self._check_held()

    def _taken(self, row: Experience) -> tuple[RowDigest | None, RowDigest]:
        """Return the digest of a row as it was written, if it waited, and as it was read."""
        uid, now = row.eid.uid, RowDigest.of(row)
        self._held.setdefault(uid, []).append(now)
        entries = self._waiting.get(uid)
        if not entries:
            return None, now
        place = next((n for n, (old, _) in enumerate(entries) if old == now), 0)
        old = entries[place][0]
        if self._num_there is not None:
            del entries[place]
            if not entries:
                del self._waiting[uid]
        return old, now

    def _tell_change(
        self, kinds: list[str], uid: str, old: RowDigest, now: RowDigest, where: str
    ) -> None:
        if old != now:
            message = f"{old.difference(now)} of experience {uid} changed {where}"
            self._audit.found("rows" if kinds is _ON_THE_WAY else "inputs", kinds, message)

    def _check_held(self) -> None:
        num_held = sum(map(len, self._held.values()))
        if num_held > self._num_excused:
            self._audit.found(
                "rows", ["sample_strategy"],
                f"it read {num_held} experiences that it neither gives nor keeps in its state, "
                f"{next(iter(self._held))} first, and no metric dropped..., filtered... or "
                f"skipped... counts them",
            )  # fmt: skip
        self._held, self._num_excused = {}, 0

    def _num_lost(self) -> int:
        if self._num_there is None or self._num_writing:
            return 0
        return sum(map(len, self._waiting.values())) - self._num_there()

    def _tell_lost(self, lost: int) -> None:
        if lost > 0:
            message = f"it lost {lost} experiences that were written and never read"
            self._audit.found("rows", ["storage"], message)

    def _forget_older(self, version: int) -> None:
        for uid, entries in list(self._waiting.items()):
            self._waiting[uid] = [one for one in entries if one[1] >= version]
            if not self._waiting[uid]:
                del self._waiting[uid]


class AuditedSource:
    """What a strategy reads from, whose reads are followed.

    Args:
        source: a storage, or what of it is ready (Any: either).
        rows: follows them.
    """

    def __init__(self, source: Any, rows: RowAudit) -> None:
        self._source, self._rows = source, rows

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        rows: list[Experience] = self._source.read(
            count, timeout_s=timeout_s, min_model_version=min_model_version
        )
        self._rows.read(rows, min_model_version=min_model_version)
        return rows

    def put_back(self, experiences: Sequence[Experience]) -> None:
        self._source.put_back(experiences)
        self._rows.put_back(experiences)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
