from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.workflows.tokens import estimate

ANY_TEXT = st.text(st.characters(exclude_categories=()))
CJK = st.characters(min_codepoint=0x3041, max_codepoint=0x9FFF) | st.characters(
    min_codepoint=0xAC00, max_codepoint=0xD7A3, exclude_categories=()
)
EMOJI = "🍸😀🎉🚀🧑🇫✅❌⭐⏰☀⚡⌚♻✨➕⬛◾❤☎"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        (" ", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("a" * 1000, 250),
        ("é" * 1000, 500),
        ("ж" * 1000, 500),
        ("ไ" * 1000, 1000),
        ("漢" * 1000, 1000),
        ("カ" * 1000, 1000),
        ("한" * 1000, 1000),
        ("𠀀" * 1000, 2000),
        ("🍸" * 1000, 2000),
        ("✅" * 1000, 2000),
        ("\ud83c", 1),
    ],
)
def test_estimate_table(text: str, tokens: int) -> None:
    """By script: 4 Latin letters a token, 2 of other alphabets, 1 CJK character, half an emoji."""
    assert estimate(text) == tokens


@given(ANY_TEXT)
def test_estimate_is_never_zero_for_text(text: str) -> None:
    """Only the empty text costs nothing, and no text costs more than two tokens a character."""
    assert (estimate(text) == 0) == (text == "")
    assert estimate(text) <= 2 * len(text)


@given(st.text(CJK))
def test_estimate_counts_a_token_for_each_cjk_character(text: str) -> None:
    """Chinese, Japanese and Korean are not under-counted (D9)."""
    assert estimate(text) >= len(text)


@given(st.text(EMOJI))
def test_estimate_counts_two_tokens_for_each_emoji(text: str) -> None:
    """Emoji are not under-counted, also those of the old symbol blocks (D9)."""
    assert estimate(text) >= 2 * len(text)


@given(ANY_TEXT, ANY_TEXT)
def test_estimate_is_additive_up_to_rounding(one: str, two: str) -> None:
    """More text never costs less, and a text costs its parts but for one rounding."""
    apart = estimate(one) + estimate(two)
    assert max(estimate(one), estimate(two)) <= estimate(one + two)
    assert apart - 1 <= estimate(one + two) <= apart
