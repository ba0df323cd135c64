"""The tokenizer of a run directory: what its tokens say, without the model."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.kept import kept_settings
from trinity.common.config.model import model_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenizers import Tokenizer

_FILE = "tokenizer.json"
_HALF = "\ufffd"  # what a part of a letter decodes to
_MAX_PARTS = 8  # tokens that may share a letter
_SPACE = "\u2581"  # how some tokenizers write a space
_CHECKPOINT = re.compile(r"global_step_(\d+)")


class RunText:
    """Reads token ids.

    Args:
        path: a ``tokenizer.json``.

    Raises:
        Exception: it cannot be read; the library raises no other.
    """

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self.path = path
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        self._between = " " if self._tokenizer.decoder is None else ""  # decoding joins words so
        self._piece = lru_cache(maxsize=1 << 16)(self._decoded)

    @classmethod
    def of(cls, directory: Path) -> RunText | None:
        """Return the reader of a run's tokens: of its newest checkpoint, or of its model.

        None: no tokenizer is there, or none that can be read.
        """
        for path in _candidates(directory):
            try:
                return cls(path)
            except Exception:  # noqa: BLE001 -- tokenizers raises Exception itself
                continue
        return None

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode([int(one) for one in ids], skip_special_tokens=False))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token; of a letter that several share, the last has it."""
        pieces: list[str] = []
        half: list[int] = []
        for token in map(int, ids):
            half.append(token)
            text = self._piece(tuple(half))
            if text.endswith(_HALF) and len(half) < _MAX_PARTS:
                pieces.append("")
                continue
            pieces.append(f"{self._between if pieces else ''}{text}")
            half = []
        if half:
            pieces[-1] = self._piece(tuple(half))
        return pieces

    def _decoded(self, ids: tuple[int, ...]) -> str:
        text = str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
        written = self._tokenizer.id_to_token(ids[0]) or ""
        if written.startswith(_SPACE) and not text.startswith(" "):
            return f" {text}"  # the decoder takes a first space away
        return text


def _candidates(directory: Path) -> Iterator[Path]:
    """Give the files that may be the tokenizer's, the nearest first."""
    steps = {
        int(found[1]): path
        for path in directory.glob("global_step_*")
        if (found := _CHECKPOINT.fullmatch(path.name))
    }
    for step in sorted(steps, reverse=True):
        yield steps[step] / "actor" / "huggingface" / _FILE
    model = _model_path(directory)
    if model:
        yield Path(model).expanduser() / _FILE
        cached = model_file(model, _FILE)
        if cached is not None:
            yield cached


def _model_path(directory: Path) -> str:
    import yaml

    try:
        kept: Any = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
        config = kept_settings(kept, directory)
        return str(config["model"]["model_path"] or "")
    except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError):
        return ""
