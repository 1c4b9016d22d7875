"""What pydantic-ai and the SDKs below it raise, as errors of ours.

Source: shared design, dependencies.md (facts).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import cast

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UserError,
)
from temporalio.exceptions import ApplicationError

from mainspring.activities import faults
from mainspring.workflows.values import clip

__all__ = ["missing_extra", "missing_variables", "provider_error"]

_STATUSES: tuple[tuple[type[ModelAPIError], int], ...] = (
    (ModelContextWindowExceededError, 400),
    (ModelAuthenticationError, 401),
    (ModelQuotaExceededError, 402),
    (ModelNotFoundError, 404),
    (ModelRateLimitError, 429),
    (ModelServerError, 500),
    (ModelOverloadedError, 529),
    (ModelUnavailableError, 503),
    (ModelRequestRejectedError, 400),
)
"""The status that a category stands for, where an error in a stream came without one; special ones first."""

_NO_FINISH = "without a `finish_reason`"
_EXTRA = re.compile(r"pydantic-ai-slim\[([a-z0-9-]+)\]")
_VARIABLES = re.compile(r"[Ss]et (?:the )?(`[A-Z][A-Z0-9_]*`(?: or `[A-Z][A-Z0-9_]*`)*)")
_OUR_EXTRAS = frozenset({"openai", "anthropic", "google"})
_KEY = re.compile(r"[A-Za-z0-9_\-]{24,}")


def provider_error(error: Exception, provider: str) -> ApplicationError:
    """The error of ours for one that a provider's model raised; never with the provider's own words in it."""
    if isinstance(error, ApplicationError):
        return error
    if isinstance(error, ImportError):
        return missing_extra(error, provider)
    if isinstance(error, UserError | NotImplementedError):
        return faults.misconfigured(f"provider {provider}: {_KEY.sub('[…]', clip(str(error), 300))}")
    if isinstance(error, ContentFilterError):
        return faults.answered(provider, 400, code="content_filter")
    if isinstance(error, ModelTimeoutError | ModelRequestTimeout):
        return faults.timed_out(provider)
    if isinstance(error, ModelConnectionError):
        return faults.disconnected(provider, _phase(error))
    if isinstance(error, ModelAPIError):
        return _api_error(error, provider)
    return faults.disconnected(provider, f"the reply could not be read ({type(error).__name__})")


def missing_extra(error: ImportError, provider: str) -> ApplicationError:
    """A provider's SDK is not installed: one line that says what to install."""
    named = _EXTRA.search(str(error))
    extra = named[1] if named else provider
    package = f"mainspring[{extra}]" if extra in _OUR_EXTRAS else f"pydantic-ai-slim[{extra}]"
    return faults.misconfigured(f"provider {provider} is not installed: pip install '{package}'")


def missing_variables(error: Exception) -> str | None:
    """The environment variables, `A` or `A or B`, that a provider's library asks for; not its advice."""
    named = _VARIABLES.search(str(error))
    return named[1].replace("`", "") if named else None


def _phase(error: ModelConnectionError) -> str:
    where = {"connect": "it could not be reached", "pool": "no connection was free"}
    return where.get(error.phase or "", "the connection broke off")


def _api_error(error: ModelAPIError, provider: str) -> ApplicationError:
    if not isinstance(error, ModelHTTPError) and _NO_FINISH in error.message:
        return faults.truncated(provider)
    status = _status(error)
    if status is None:
        return faults.disconnected(provider, "the stream reported an error")
    code: object = error.provider_error_code or _said(error.body, "code")
    if isinstance(error, ModelContextWindowExceededError):
        code = "context_length_exceeded"
    elif isinstance(error, ModelQuotaExceededError):
        code = code or "insufficient_quota"
    return faults.answered(
        provider,
        status,
        code=code,
        kind=error.provider_error_type or _said(error.body, "type"),
        parameter=_said(error.body, "param"),
        text=_text(error.body),
        retry_after=_retry_after(error),
    )


def _status(error: ModelAPIError) -> int | None:
    if isinstance(error, ModelHTTPError):
        return error.status_code
    return next((status for category, status in _STATUSES if isinstance(error, category)), None)


def _retry_after(error: ModelAPIError) -> float | str | None:
    """The header as it stands, which says more than what a library made of it."""
    headers = error.headers if isinstance(error, ModelHTTPError) and error.headers else {}
    return headers.get("retry-after") or error.retry_after


def _said(body: object, key: str) -> object:
    """A field of a provider's error object: its code, or the parameter that it is about."""
    if not isinstance(body, Mapping):
        return None
    whole = cast("Mapping[str, object]", body)
    inner = whole.get("error", whole)
    return cast("Mapping[str, object]", inner).get(key) if isinstance(inner, Mapping) else None


def _text(body: object) -> str:
    if isinstance(body, str):
        return body[: faults.TEXT_READ]
    try:
        return json.dumps(body)[: faults.TEXT_READ]
    except (TypeError, ValueError, RecursionError):
        return ""
