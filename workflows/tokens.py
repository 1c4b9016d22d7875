"""Tokens of a text, estimated deterministically. Pure.

Source: shared design, context.md "Plan": by script; never 0 for a text that is not empty.
"""

from __future__ import annotations

import re

__all__ = ["estimate"]

_LATIN_CHARACTERS_A_TOKEN = 4
_CLASSES: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile("[\U00010000-\U0010ffff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff]+"), 8),
    (re.compile("[\u0e00-\u1fff\u2e80-\uffff]+"), 4),
    (re.compile("[\u2000-\u22ff\u2400-\u259f\u27c0-\u2aff\u2c00-\u2e7f]+"), 3),
    (re.compile("[\u0080-\u0dff]+"), 2),
)
"""Runs of characters, and quarter tokens of each: emoji, CJK and Thai, symbols, other alphabets.

Counted in runs, since a workflow task has two seconds and a message may have a million characters.
"""


def estimate(text: str) -> int:
    """About 4 characters a token for Latin text, 2 for other alphabets; 1 to 2 tokens a character beyond."""
    if not text:
        return 0
    if text.isascii():
        return (len(text) + _LATIN_CHARACTERS_A_TOKEN - 1) // _LATIN_CHARACTERS_A_TOKEN
    quarters = 0
    for characters, each in _CLASSES:
        rest = characters.sub("", text)
        quarters += each * (len(text) - len(rest))
        text = rest
    return max(1, (quarters + len(text) + 3) // 4)
