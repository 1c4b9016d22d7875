"""Words: how text becomes the tokens that tools are ranked by.

Text is normalised (NFKC), split into parts, folded and stemmed:

    getURLs → get url        web_search → web search        scheduling, schedule → schedul
    naïve → naive            検索する → 検索 索す する         الكتاب → كتاب

A part is a run of letters or of digits; camelCase and every character that is neither end it. Scripts that
put no spaces between words, and Hangul, whose words carry their grammar with them, are cut into pairs of
characters. Pure, and a function of the text alone: the same tokens in every process.

Source: shared design, loop.md "Router"; field-faults.md I2, I3.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["FUNCTION_WORDS", "parts", "parts_of", "runs", "stem", "telling", "tokens"]

RUNS_KEPT = 65_536
"""Runs and stems that are remembered: more than the vocabulary of any catalog."""

RUN_REMEMBERED = 64
"""Characters up to which a run is worth remembering; a longer one hardly comes again."""

_ASCII_RUN = re.compile(r"[A-Za-z0-9]+")
_CAMEL = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_SPACELESS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\u3005-\u3007\u3040-\u312f\u31f0-\u31ff\U0001b000-\U0001b16f"  # kana, bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_SEGMENT = re.compile(f"[{_SPACELESS}]+|[^{_SPACELESS}]+")
_SPACELESS_RUN = re.compile(f"[{_SPACELESS}]+")

_MARKS_KEPT = ((0x0900, 0x1AB0), (0x3099, 0x309B), (0xA800, 0xAC00))
"""Marks that are letters of their script, or that join their letter again. Others are accents and points."""

_TATWEEL, _TEH_MARBUTA, _ALEF_MAKSURA = 0x0640, 0x0629, 0x0649
_SPACE = 0x20


class _Letters(dict[int, int | None]):
    """For `str.translate`: letters and digits stay, accents and points go, all else becomes a space."""

    def __missing__(self, code: int) -> int | None:
        self[code] = kept = self._kept(code)
        return kept

    @staticmethod
    def _kept(code: int) -> int | None:
        character = chr(code)
        if unicodedata.category(character).startswith("M"):
            return code if any(start <= code < end for start, end in _MARKS_KEPT) else None
        if code == _TATWEEL:
            return None
        if code == _TEH_MARBUTA:
            return 0x0647
        if code == _ALEF_MAKSURA:
            return 0x064A
        return code if character.isalnum() else _SPACE


_LETTERS = _Letters()


def tokens(text: str) -> list[str]:
    """The stems of a text's parts, in order, repeated as often as they occur.

    Total and linear in the text: any string has tokens, perhaps none.
    """
    return [stem(part) for part in parts(text)]


def parts(text: str) -> list[str]:
    """A text's words, split and folded but not stemmed, in order."""
    found: list[str] = []
    for run in runs(text):
        found += parts_of(run)
    return found


def runs(text: str) -> list[str]:
    """Unbroken letters and digits, in order, in the case they are written in."""
    if text.isascii():
        return _ASCII_RUN.findall(text)
    plain = unicodedata.normalize("NFKD", text).translate(_LETTERS)
    return unicodedata.normalize("NFC", plain).split()


def parts_of(run: str) -> tuple[str, ...]:
    """The parts of one run."""
    return _remembered_parts(run) if len(run) <= RUN_REMEMBERED else _parts(run)


def _parts(run: str) -> tuple[str, ...]:
    if run.isascii():
        return tuple(part.lower() for part in _CAMEL.findall(run))
    found: list[str] = []
    for segment in _SEGMENT.findall(run):
        if _SPACELESS_RUN.match(segment):
            found += [segment[at : at + 2] for at in range(max(1, len(segment) - 1))]
        elif segment.isascii():
            found += [part.lower() for part in _CAMEL.findall(segment)]
        else:
            found += [part.casefold() for part in _uncamelled(segment)]
    return tuple(found)


_remembered_parts = lru_cache(maxsize=RUNS_KEPT)(_parts)


def _uncamelled(segment: str) -> list[str]:
    """A segment with letters beyond ASCII, cut where digits begin or end and before a capital."""
    found: list[str] = []
    start = 0
    for at in range(1, len(segment)):
        before, here = segment[at - 1], segment[at]
        if before.isdigit() != here.isdigit() or (before.islower() and here.isupper()):
            found.append(segment[start:at])
            start = at
    return [*found, segment[start:]]


FUNCTION_WORDS = frozenset(
    parts(
        "a about all also am an and any are as at be been both but by can could did do does each every"
        " for from had has have he her here his how i if in into is it its just may me might my no not of"
        " on only or our she should so some such than that the their them then there these they this those"
        " to us very was we were what when where which who whom whose why will with would you your"
    )
)
"""English words that say how others belong together, and nothing about what a text is about."""


def telling(said: Sequence[str]) -> list[str]:
    """The parts of a query that say what it is about; all of them where none does."""
    return [part for part in said if part not in FUNCTION_WORDS] or list(said)


# -- stems -----------------------------------------------------------------------------------------

_NOT_PLURALS = frozenset({"news"})
_ENGLISH = re.compile(r"[a-z]{3,}")
_VOWELS = "aeiouy"
_LAST_OF_ENDINGS = frozenset("sdgeynlr")
_HISSING_PLURALS = ("ches", "shes", "sses", "xes")
_ARABIC_ARTICLE = re.compile(r"(?:[وفبكل]?ال|لل)(?=\w{3})")


@lru_cache(maxsize=RUNS_KEPT)
def stem(part: str) -> str:
    """What the inflections of a word share; a stem is its own stem.

    English plurals, -ed, -ing, -ion and -ator after t or s, final e and y; the Arabic article. It never goes
    inside a word: "read" and "spreadsheet" have nothing in common.
    """
    if not part.isascii():
        return _ARABIC_ARTICLE.sub("", part, count=1) if _ARABIC_ARTICLE.match(part) else part
    if part[-1:] not in _LAST_OF_ENDINGS or not _ENGLISH.fullmatch(part):
        return part
    while (shorter := _step(part)) != part:
        part = shorter
    return part


def _step(word: str) -> str:
    """One ending taken off; each step shortens, or turns a final y into i."""
    if word.endswith("s"):
        return _singular(word)
    if word.endswith("ied"):
        return word[:-2] if len(word) > 3 else word
    if word.endswith("ed"):
        return word if word.endswith("eed") else _base(word, word[:-2])
    if word.endswith("ing"):
        return _base(word, word[:-3])
    return _bare(word)


def _singular(word: str) -> str:
    if word.endswith("ss") or len(word) < 4 or word in _NOT_PLURALS:
        return word
    if word.endswith("ies") or word.endswith(_HISSING_PLURALS):
        return word[:-2]
    return word[:-1]


def _base(word: str, rest: str) -> str:
    """What -ed or -ing was added to: `map` of mapping, `page` of paging; the word itself when to nothing."""
    if len(rest) < 2 or not any(letter in _VOWELS for letter in rest):
        return word
    last, before = rest[-1], rest[-2]
    if last == before and last not in "aeioulsz" and len(rest) > 3:
        return rest[:-1]
    short = len(rest) == 2 or (len(rest) == 3 and rest[0] not in _VOWELS)
    if short and before in _VOWELS and last not in "aeiouwxy":
        return f"{rest}e"
    return rest


def _bare(word: str) -> str:
    """Final e, y, ie and double l, -ion and -or after what a verb in -ate or -t leaves."""
    if word.endswith("ie"):
        return word[:-1]
    if word.endswith("y") and word[-2] not in _VOWELS:
        return f"{word[:-1]}i"
    if len(word) > 4 and ((word.endswith("e") and word[-2] != "e") or word.endswith("ll")):
        return word[:-1]
    if len(word) > 7 and word.endswith(("tion", "sion")):
        return word[:-3]
    if len(word) > 6 and word.endswith("ator"):
        return word[:-2]
    return word
