"""The one place that makes errors of the model path: what Temporal retries, what the caller must mend.

Messages are fixed summaries. A provider's own words quote prompts and keys, so of them only codes that look
like identifiers are kept; headers and bodies never are.

    retryable      rate limited · overloaded · 5xx · connection · time-out · a stream cut short
    not retryable  credentials · not found · another 4xx · quota spent · context exceeded · refused

Source: shared design, dependencies.md (facts), style.md "Errors, by who acts"; field-faults.md D10, H8, L6.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import isnan
from typing import Final

from temporalio.exceptions import ApplicationError

from mainspring.schemas.errors import (
    CATALOG_UNAVAILABLE,
    MODEL_CONTEXT_EXCEEDED,
    MODEL_MISCONFIGURED,
    MODEL_RATE_LIMITED,
    MODEL_REFUSED,
    MODEL_REJECTED,
    MODEL_UNAVAILABLE,
    SCRIPT_MISMATCH,
)

__all__ = [
    "RETRY_AFTER_MAX_SECONDS",
    "answered",
    "catalog_unavailable",
    "disconnected",
    "misconfigured",
    "retry_seconds",
    "script_mismatch",
    "timed_out",
    "truncated",
    "window_in",
    "with_usage",
]

RETRY_AFTER_MAX_SECONDS: Final = 300.0
"""A provider that asks for more is waited for this long, and the message says so."""

TEXT_READ: Final = 20_000
"""Characters of a provider's error that are looked at."""

_RETRYABLE = frozenset({MODEL_RATE_LIMITED, MODEL_UNAVAILABLE})

_WORDS: Final[dict[int, str]] = {
    400: "bad request",
    401: "credentials refused",
    402: "quota spent",
    403: "not permitted",
    404: "not found",
    408: "time-out",
    409: "conflict",
    413: "request too large",
    422: "bad request",
    425: "too early",
    429: "rate limited",
    500: "server error",
    502: "bad gateway",
    503: "unavailable",
    504: "gateway time-out",
    529: "overloaded",
}
_CONTEXT = re.compile(
    r"context_length_exceeded|context_window_exceeded|maximum context length|context (?:window|size|length)"
    r"|prompt is too long|input is too long|too many (?:input )?tokens|input token count|reduce the length"
    r"|input length and .?max_tokens.? exceed",
    re.IGNORECASE,
)
_QUOTA_CODE = re.compile(r"insufficient_quota|billing|spend_limit|usage_limit|credit_balance", re.IGNORECASE)
_QUOTA_TEXT = re.compile(r"credit balance is too low", re.IGNORECASE)
_POLICY_CODE = re.compile(r"content_filter|content_policy|responsible.?ai|safety|moderation", re.IGNORECASE)
_POLICY_TEXT = re.compile(r"content management policy|blocked by content filtering policy", re.IGNORECASE)
_OVERLOADED = re.compile(r"overloaded", re.IGNORECASE)
_WINDOW = re.compile(
    r"(?:maximum context length (?:is|of)|context (?:window|size|length) (?:is|of)|tokens? >|maximum of)\s*"
    r"\(?([0-9][0-9,_]{2,11})",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_.\[\]-]{1,63}")
_KEY_LIKE = re.compile(r"(?:sk|pk|key|token)[-_][A-Za-z0-9]|[A-Za-z0-9]{24,}", re.IGNORECASE)


def answered(
    provider: str,
    status: int,
    *,
    code: object = None,
    kind: object = None,
    parameter: object = None,
    text: str = "",
    retry_after: float | str | None = None,
) -> ApplicationError:
    """The error for an HTTP status (or an error event in a stream, with the status it stands for).

    `text` is the provider's own; it is read to tell what happened, and never repeated.
    """
    type_, summary = _classify(status, f"{code or ''} {kind or ''}", text[:TEXT_READ])
    shown = [identifier for item in (code, kind, parameter) if (identifier := _identifier(item))]
    message = f"provider {provider} answered {status} ({summary})"
    if shown:
        message += ": " + ", ".join(dict.fromkeys(shown))
    delay = retry_seconds(retry_after) if type_ in _RETRYABLE else None
    exceeded = type_ == MODEL_CONTEXT_EXCEEDED
    details: list[dict[str, object]] = [{"status": status, "window": window_in(text)}] if exceeded else []
    return _error(type_, message, delay=delay, asked=retry_after, details=details)


def _classify(status: int, codes: str, text: str) -> tuple[str, str]:
    """Type and summary; what the words say outranks the status, since overflow also comes as a 500.

    Codes are trusted more than text, which may quote the prompt, or speak of quotas where a rate is meant.
    """
    if status != 429 and (_CONTEXT.search(codes) or _CONTEXT.search(text)):
        return MODEL_CONTEXT_EXCEEDED, "the request is longer than the model's context window"
    if status < 500 and (_POLICY_CODE.search(codes) or _POLICY_TEXT.search(text)):
        return MODEL_REFUSED, "refused by the provider's policy"
    if status < 500 and (status == 402 or _QUOTA_CODE.search(codes) or _QUOTA_TEXT.search(text)):
        return MODEL_REJECTED, "quota spent"
    if status == 413:
        return MODEL_CONTEXT_EXCEEDED, "the request is too large"
    if status == 429:
        return MODEL_RATE_LIMITED, "rate limited"
    if status >= 500 or status in (408, 409, 425):
        summary = (
            "overloaded" if _OVERLOADED.search(f"{codes} {text}") else _WORDS.get(status, "server error")
        )
        return MODEL_UNAVAILABLE, summary
    return MODEL_REJECTED, _WORDS.get(status, "rejected")


def _identifier(value: object) -> str | None:
    """A code of the provider's that cannot be a quotation or a key."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value) or _KEY_LIKE.search(value):
        return None
    return value


def window_in(text: str) -> int | None:
    """The context window, in tokens, that a provider's error names."""
    found = _WINDOW.search(text[:TEXT_READ])
    return int(re.sub(r"[,_]", "", found[1])) if found else None


def disconnected(provider: str, what: str = "the connection failed") -> ApplicationError:
    """The provider could not be reached, or the connection broke."""
    return _error(MODEL_UNAVAILABLE, f"provider {provider}: {what}")


def timed_out(provider: str) -> ApplicationError:
    """The provider did not answer in time."""
    return _error(MODEL_UNAVAILABLE, f"provider {provider} did not answer in time")


def truncated(provider: str) -> ApplicationError:
    """A stream ended without saying why: what came is part of an answer, and part is not to be trusted."""
    return _error(MODEL_UNAVAILABLE, f"provider {provider}: the stream ended before the reply was complete")


def with_usage(error: ApplicationError, usage: dict[str, object]) -> ApplicationError:
    """The same error, with what its attempts were billed in its details: a failed run reports its spend."""
    known: dict[str, object] = dict(error.details[0]) if error.details else {}
    return ApplicationError(
        error.message,
        {**known, "usage": usage},
        type=error.type,
        non_retryable=error.non_retryable,
        next_retry_delay=error.next_retry_delay,
    )


def misconfigured(message: str) -> ApplicationError:
    """The configuration must be mended; `message` says what and how."""
    return _error(MODEL_MISCONFIGURED, message)


def catalog_unavailable(message: str) -> ApplicationError:
    """The tools' definitions cannot be read."""
    return _error(CATALOG_UNAVAILABLE, message)


def script_mismatch(message: str) -> ApplicationError:
    """The scripted model's expectation failed, or its replies are used up."""
    return _error(SCRIPT_MISMATCH, message)


def _error(
    type_: str,
    message: str,
    *,
    delay: float | None = None,
    asked: float | str | None = None,
    details: list[dict[str, object]] | None = None,
) -> ApplicationError:
    if delay is not None and delay >= RETRY_AFTER_MAX_SECONDS:
        message += f"; it asks for a wait of {RETRY_AFTER_MAX_SECONDS:.0f} s or more"
    return ApplicationError(
        message,
        *(details or ()),
        type=type_,
        non_retryable=type_ not in _RETRYABLE,
        next_retry_delay=timedelta(seconds=delay) if delay else None,
    )


def retry_seconds(value: float | str | None, *, now: datetime | None = None) -> float | None:
    """Seconds to wait of a Retry-After header: a number or an HTTP date, clamped to [0, 300].

    None when there is none or it makes no sense; never raises.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        seconds = _seconds_until(str(value), now or datetime.now(UTC))
    if isnan(seconds):
        return None
    return min(max(0.0, seconds), RETRY_AFTER_MAX_SECONDS)


def _seconds_until(date: str, now: datetime) -> float:
    """Seconds until an HTTP date; NaN when it is none."""
    try:
        at = parsedate_to_datetime(date)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return (at - now).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return float("nan")
