"""Cut a text into search terms as Lucene's English analyzer does.

Words by UAX #29 with the tailoring of Lucene's StandardTokenizer, emoji of Unicode 12, possessives
stripped, lower case, stop words, stems.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from trinity_envs_webshop.stemmer import stem

if TYPE_CHECKING:
    import regex  # type: ignore[import-untyped,unused-ignore]

__all__ = ["MAX_TOKEN_LENGTH", "STOP_WORDS", "raw_words", "terms"]

MAX_TOKEN_LENGTH = 255
STOP_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "for",
        "if",
        "in",
        "into",
        "is",
        "it",
        "no",
        "not",
        "of",
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "will",
        "with",
    ]
)
_POSSESSIVES = ("'s", "\u2019s", "\uff07s", "'S", "\u2019S", "\uff07S")


def terms(text: str) -> list[str]:
    """Return the terms of a text in order, stop words left out.

    >>> terms("Women's running shoes, size 6.5")
    ['women', 'run', 'shoe', 'size', '6.5']
    """
    found = (term_of(word) for word in raw_words(text))
    return [term for term in found if term is not None]


def raw_words(text: str) -> list[str]:
    """Return the words of a text as they are written.

    >>> raw_words("usb_c / 3,000 mAh")
    ['usb_c', '3,000', 'mAh']
    """
    found = _ascii_words().findall(text) if text.isascii() else _any_words().findall(text)
    if all(len(word) <= MAX_TOKEN_LENGTH for word in found):
        return found
    return [
        word[start : start + MAX_TOKEN_LENGTH]
        for word in found
        for start in range(0, len(word), MAX_TOKEN_LENGTH)
    ]


def term_of(word: str) -> str | None:
    """Return the term that a word is indexed under; None: a stop word."""
    if word.endswith(_POSSESSIVES):
        word = word[:-2]
    word = word.lower() if word.isascii() else "".join(map(_lower, word))
    return None if word in STOP_WORDS else stem(word)


@cache
def _lower(letter: str) -> str:
    """Return the simple lower case of one code point, which is one code point."""
    lowered = letter.lower()
    return "i" if letter == "\u0130" else lowered if len(lowered) == 1 else letter


@cache
def _ascii_words() -> re.Pattern[str]:
    """Return the same rules for ASCII alone, three times as fast."""
    letters = "[A-Za-z]+(?:(?:_+|[:.'])[A-Za-z]+)*"
    digits = "[0-9]+(?:(?:_+|[,;.'])[0-9]+)*"
    part = f"(?:{digits}|{letters})+"
    return re.compile(f"_*{part}(?:_+{part})*_*")


@cache
def _any_words() -> regex.Pattern[str]:
    import regex

    attached = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
    hebrew, katakana = r"\p{WB=Hebrew_Letter}", r"\p{WB=Katakana}"
    digit = r"[\p{WB=Numeric}\uff10-\uff19]"
    joiner = r"[_\u202f\u203f\u2040\u2054\ufe33\ufe34\ufe4d-\ufe4f\uff3f]"
    single_quote, mid_both = "'", r".\u2018\u2019\u2024\ufe52\uff07\uff0e"
    mid_letter = rf"[{single_quote}{mid_both}:\u00b7\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a]"
    mid_digit = (
        rf"[{single_quote}{mid_both},;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50"
        r"\ufe54\uff0c\uff1b]"
    )
    letter = rf"[\p{{WB=ALetter}}{hebrew}]"
    run = f"(?:{joiner}{attached})"
    hebrews = f'{hebrew}{attached}(?:{single_quote}{attached}|"{attached}{hebrew}{attached})'
    letters = f"{letter}{attached}(?:(?:{run}*|{mid_letter}{attached}){letter}{attached})*"
    digits = f"{digit}{attached}(?:(?:{run}*|{mid_digit}{attached}){digit}{attached})*"
    katakanas = f"{katakana}{attached}(?:{run}*{katakana}{attached})*"
    part = f"(?:{katakanas}|(?:{hebrews}|{digits}|{letters})+)"
    word = f"{run}*{part}(?:{run}+{part})*{run}*"
    emoji = f"[{_emoji_ranges()}]"
    return regex.compile(
        "|".join(
            (
                r"[0-9#*]\ufe0f?\u20e3",
                word,
                rf"(?:\p{{WB=Regional_Indicator}}{attached}){{2}}",
                rf"{emoji}{attached}(?:(?<=\u200d){emoji}{attached})*",
                rf"(?:\p{{LB=Complex_Context}}{attached})+",
                rf"[\p{{Script=Han}}\p{{Script=Hiragana}}]{attached}",
            )
        )
    )


def _emoji_ranges() -> str:
    file = files("trinity_envs_webshop") / "data" / "extended_pictographic_unicode12.json"
    ranges = json.loads(file.read_text(encoding="utf-8"))["ranges"]
    return "".join(f"{chr(int(first, 16))}-{chr(int(last, 16))}" for first, last in ranges)
