"""Stem English words as Lucene's PorterStemFilter does.

Porter's algorithm of 1980 with his own two departures (``bli`` -> ``ble``, ``logi`` -> ``log``);
words of one or two letters stay as they are.
"""

from __future__ import annotations

from itertools import pairwise

__all__ = ["stem"]

_VOWELS = frozenset("aeiou")
_STEP_2 = {
    "a": [("ational", "ate"), ("tional", "tion")],
    "c": [("enci", "ence"), ("anci", "ance")],
    "e": [("izer", "ize")],
    "l": [("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")],
    "o": [("ization", "ize"), ("ation", "ate"), ("ator", "ate")],
    "s": [("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")],
    "t": [("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")],
    "g": [("logi", "log")],
}
_STEP_3 = {
    "e": [("icate", "ic"), ("ative", ""), ("alize", "al")],
    "i": [("iciti", "ic")],
    "l": [("ical", "ic"), ("ful", "")],
    "s": [("ness", "")],
}
_STEP_4 = {
    "a": ["al"],
    "c": ["ance", "ence"],
    "e": ["er"],
    "i": ["ic"],
    "l": ["able", "ible"],
    "n": ["ant", "ement", "ment", "ent"],
    "o": ["ion", "ou"],
    "s": ["ism"],
    "t": ["ate", "iti"],
    "u": ["ous"],
    "v": ["ive"],
    "z": ["ize"],
}


def stem(word: str) -> str:
    """Return the stem of a lower-case word.

    >>> [stem(word) for word in ("running", "technologies", "happy", "us")]
    ['run', 'technolog', 'happi', 'us']
    """
    if len(word) <= 2:
        return word
    word = _without_plural(word)
    word = _without_ed_or_ing(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2.get(word[-2:-1], []))
    word = _replaced(word, _STEP_3.get(word[-1:], []))
    word = _without_ending(word)
    return _without_last_letter(word)


def _without_plural(word: str) -> str:
    if word.endswith("sses") or word.endswith("ies"):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _without_ed_or_ing(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        rest = word[: -len(ending)]
        if word.endswith(ending) and _has_vowel(rest):
            return _mended(rest)
    return word


def _mended(rest: str) -> str:
    """Return what ``-ed`` or ``-ing`` was put on: ``hop`` of ``hopp``, ``rate`` of ``rat``."""
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_in_double(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    if _measure(rest) == 1 and _ends_in_cvc(rest):
        return rest + "e"
    return rest


def _replaced(word: str, rules: list[tuple[str, str]]) -> str:
    for ending, replacement in rules:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return rest + replacement if _measure(rest) > 0 else word
    return word


def _without_ending(word: str) -> str:
    for ending in _STEP_4.get(word[-2:-1], []):
        if not word.endswith(ending):
            continue
        rest = word[: -len(ending)]
        if ending == "ion" and not rest.endswith(("s", "t")):
            continue
        return rest if _measure(rest) > 1 else word
    return word


def _without_last_letter(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_in_cvc(rest)):
            word = rest
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


def _kinds(word: str) -> list[bool]:
    """Return for each letter whether it is a vowel; a ``y`` after a consonant is one."""
    kinds: list[bool] = []
    for letter in word:
        is_y = letter == "y" and bool(kinds) and not kinds[-1]
        kinds.append(letter in _VOWELS or is_y)
    return kinds


def _measure(word: str) -> int:
    """Return how often a vowel is followed by a consonant."""
    kinds = _kinds(word)
    return sum(1 for this, following in pairwise(kinds) if this > following)


def _has_vowel(word: str) -> bool:
    return any(_kinds(word))


def _ends_in_double(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and not _kinds(word)[-1]


def _ends_in_cvc(word: str) -> bool:
    return len(word) >= 3 and _kinds(word)[-3:] == [False, True, False] and word[-1] not in "wxy"
