"""Tokens and what they cost. Prices are those that genai-prices ships: no network.

Source: shared design, dependencies.md; loop.md "Budgets" (usage that is missing stays missing, never 0).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from mainspring.schemas.activities import Usage
from mainspring.schemas.agent import ModelSpec
from mainspring.schemas.base import unwire
from mainspring.schemas.script import TokenPrice

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

__all__ = ["added", "dollars", "priced"]

_MILLION = 1_000_000.0
_ALIASES = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "azure-responses": "azure",
    "google-cloud": "google",
    "google-vertex": "google",
    "google-gla": "google",
    "bedrock": "aws",
    "bedrock-mantle": "aws",
    "xai": "x-ai",
}
"""Names of pydantic-ai that genai-prices spells otherwise."""


def priced(spec: ModelSpec) -> bool:
    """Whether the price of a model's tokens is known."""
    if spec.script is not None:
        return _scripted_price(spec) is not None
    return spec.model is not None and _known(spec.model) is not None


def dollars(spec: ModelSpec, usage: Usage, *, cache_write_tokens: int = 0) -> float | None:
    """What a call cost; None when the price is not known.

    `cache_write_tokens` are those of the input that the provider wrote to its cache, at its own price.
    """
    if spec.script is not None:
        price = _scripted_price(spec)
        return None if price is None else _scripted_dollars(price, usage)
    return None if spec.model is None else _provider_dollars(spec.model, usage, cache_write_tokens)


def added(first: Usage | None, second: Usage | None) -> Usage | None:
    """The sum of two usages; dollars are unknown as soon as one of the two is."""
    if first is None or second is None:
        return first or second
    known = first.dollars is not None and second.dollars is not None
    return Usage(
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
        cached_tokens=first.cached_tokens + second.cached_tokens,
        dollars=(first.dollars or 0.0) + (second.dollars or 0.0) if known else None,
    )


def _scripted_price(spec: ModelSpec) -> TokenPrice | None:
    price = (spec.script or {}).get("price")
    return None if price is None else unwire(TokenPrice, price)


def _scripted_dollars(price: TokenPrice, usage: Usage) -> float:
    cached = min(usage.cached_tokens, usage.input_tokens)
    cached_price = price.input if price.cached is None else price.cached
    fresh = (usage.input_tokens - cached) * price.input
    return (fresh + cached * cached_price + usage.output_tokens * price.output) / _MILLION


def _provider_dollars(model: str, usage: Usage, cache_write_tokens: int) -> float | None:
    if _known(model) is None:
        return None
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    provider, name = _names(model)
    try:
        found = calc_price(
            Priced(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=min(usage.cached_tokens, usage.input_tokens) or None,
                cache_write_tokens=cache_write_tokens or None,
            ),
            name,
            provider_id=provider,
        )
    except (LookupError, ValueError):
        return None
    return float(found.total_price)


@lru_cache(maxsize=256)
def _known(model: str) -> ModelPrice | None:
    """The price of `<provider>:<model>`, when there is one."""
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    provider, name = _names(model)
    try:
        return calc_price(Priced(input_tokens=1, output_tokens=1), name, provider_id=provider).model_price
    except (LookupError, ValueError):
        return None


def _names(model: str) -> tuple[str, str]:
    provider, _, name = model.partition(":")
    provider = provider.removeprefix("gateway/")
    return _ALIASES.get(provider, provider), name
