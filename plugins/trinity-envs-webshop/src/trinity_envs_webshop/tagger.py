"""Find the nouns of a product's title."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from trinity.errors import ConfigError, unknown_name
from trinity.extend.component import imported_target

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GivenNouns", "LexiconTagger", "SpacyTagger", "Tagger", "TextBlobTagger", "tagger_named"]


class Tagger(Protocol):
    """Any class of yours with these two; named ``module:Class``."""

    name: str  # recorded with the run

    def nouns(self, text: str) -> list[str]:
        """Return the nouns and names in order, in lower case, repeats kept."""


class LexiconTagger:
    """Takes every word for a noun that is no number and that the bundled lexicon does not list.

    The lexicon lists the words of titles that are something else: function words, adjectives,
    adverbs and verbs. Words of adjectives' and adverbs' endings count as listed.
    """

    name = "lexicon"

    def nouns(self, text: str) -> list[str]:
        """Return the nouns of a title.

        >>> LexiconTagger().nouns("Soft Cotton Towels for the Bathroom, 2 Pack")
        ['cotton', 'towels', 'bathroom', 'pack']
        """
        lexicon = _lexicon()
        words = (word.lower() for word in _WORD.findall(text))
        return [
            word
            for word in words
            if word not in lexicon and (word in _NOUNS or not _NOT_NOUN.search(word))
        ]


class TextBlobTagger:
    """Takes the nouns that TextBlob's lexicon tagger finds; needs the extra ``textblob``."""

    name = "textblob"

    def __init__(self) -> None:
        try:
            from textblob.en import tag  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise _not_installed("textblob") from error
        self._tag: Any = tag

    def nouns(self, text: str) -> list[str]:
        """Return the nouns of a title."""
        return [word.lower() for word, kind in self._tag(text) if kind.startswith("NN")]


class SpacyTagger:
    """Takes the nouns and names that a spaCy model finds, as the published environment does."""

    def __init__(self, model: str = "en_core_web_sm") -> None:
        try:
            import spacy  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise _not_installed("spacy") from error
        try:
            self._model: Any = spacy.load(model, disable=["parser", "ner", "lemmatizer"])
        except OSError as error:
            raise ConfigError(
                f"tagger 'spacy' needs the model {model}: {error}. Run: python -m spacy download "
                f"{model}"
            ) from error
        self.name = f"spacy:{model}-{self._model.meta.get('version', '?')}"

    def nouns(self, text: str) -> list[str]:
        """Return the nouns of a title."""
        return [word.text.lower() for word in self._model(text) if word.pos_ in {"NOUN", "PROPN"}]


class GivenNouns:
    """Looks the nouns up in a table."""

    name = "given"

    def __init__(self, table: Mapping[str, list[str]]) -> None:
        self._table = table

    def nouns(self, text: str) -> list[str]:
        """Return what the table holds for the title."""
        return self._table[text]


_NAMED: dict[str, Any] = {
    "lexicon": LexiconTagger,
    "textblob": TextBlobTagger,
    "spacy": SpacyTagger,
}


@lru_cache(8)
def tagger_named(name: str) -> Tagger:
    """Return the tagger of that name, or of ``module:Class``; it is never chosen by itself.

    Raises:
        ConfigError: there is no such tagger, or what it needs is not installed.
    """
    if name in _NAMED:
        named: Tagger = _NAMED[name]()
        return named
    if ":" not in name:
        raise ConfigError(f"{unknown_name('tagger', name, _NAMED)} Or write module:Class.")
    tagger: Tagger = imported_target(name)()
    return tagger


_WORD = re.compile(r"[^\W_]+(?:['\u2019](?!s\b)[^\W_]+)*")
_NOT_NOUN = re.compile(r"^\d|^.$|\w\w(?:able|ible|less|ous)$|\w{3}(?:ful|ish|ly|proof)$")
_NOUNS = {  # that end as adjectives and adverbs do
    *("vegetable", "timetable", "turntable", "collectible", "family", "supply", "assembly"),
    *("butterfly", "finish", "polish", "radish", "varnish", "handful", "spoonful"),
    *("starfish", "jellyfish", "goldfish", "crayfish"),
}


@cache
def _lexicon() -> frozenset[str]:
    file = files("trinity_envs_webshop") / "data" / "not_nouns.txt"
    return frozenset(file.read_text(encoding="utf-8").split())


def _not_installed(name: str) -> ConfigError:
    return ConfigError(
        f"tagger {name!r} needs a package that is not installed. Run: python -m pip install "
        f"'trinity-envs-webshop[{name}]', or set tagger: lexicon."
    )
