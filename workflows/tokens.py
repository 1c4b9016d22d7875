"""Tokens of a text, estimated deterministically. Pure.

Source: shared design, context.md "Plan": by script; never 0 for a text that is not empty.
"""

from __future__ import annotations

__all__ = ["estimate"]

_LATIN_CHARACTERS_A_TOKEN = 4
_EMOJI = ((0x2300, 0x23FF), (0x25A0, 0x27BF), (0x2B00, 0x2BFF))
"""Blocks below U+10000 that hold emoji."""


def estimate(text: str) -> int:
    """About 4 characters a token for Latin text, 2 for other alphabets; 1 to 2 tokens a character beyond."""
    if not text:
        return 0
    if text.isascii():
        return (len(text) + _LATIN_CHARACTERS_A_TOKEN - 1) // _LATIN_CHARACTERS_A_TOKEN
    quarters = 0
    for character in text:
        quarters += _quarters(ord(character))
    return max(1, (quarters + 3) // 4)


def _quarters(point: int) -> int:
    """Quarter tokens of one character."""
    if point < 0x0E00:
        return 1 if point < 0x80 else 2
    if point >= 0x10000 or any(first <= point <= last for first, last in _EMOJI):
        return 8
    return 4 if point < 0x2000 or point >= 0x2E80 else 3
