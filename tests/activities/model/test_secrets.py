"""Secrets, by reference."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from mainspring.activities.secrets import resolve
from mainspring.schemas.errors import MODEL_MISCONFIGURED


def test_secret_comes_from_the_environment(monkeypatch):
    """`env:NAME` is read when it is needed."""
    monkeypatch.setenv("A_KEY", "one")
    assert resolve("env:A_KEY") == "one"
    monkeypatch.setenv("A_KEY", "two")
    assert resolve("env:A_KEY") == "two"


def test_secret_comes_from_a_file(tmp_path):
    """`file:path` is the file's text without the line break at its end."""
    (tmp_path / "key").write_text("s3cret\n")
    assert resolve(f"file:{tmp_path / 'key'}") == "s3cret"


@pytest.mark.parametrize("reference", ["env:NOT_SET_ANYWHERE", "file:/nowhere/key", "env:", "sk-live-123456"])
def test_secret_missing_is_the_callers_error(reference):
    """A secret that cannot be had is named by its reference, at once; what may be a value is never shown."""
    with pytest.raises(ApplicationError) as caught:
        resolve(reference)
    assert (caught.value.type, caught.value.non_retryable) == (MODEL_MISCONFIGURED, True)
    assert "sk-live" not in str(caught.value)
    assert "NOT_SET" in str(caught.value) or "NOT_SET" not in reference


def test_secret_that_is_no_text_is_refused_without_its_value(tmp_path):
    """A binary or empty file is refused by name."""
    (tmp_path / "key").write_bytes(b"\xff\xfe\x00top")
    with pytest.raises(ApplicationError, match="is not text") as caught:
        resolve(f"file:{tmp_path / 'key'}")
    assert "top" not in str(caught.value).replace(str(tmp_path), "")
    (tmp_path / "empty").write_bytes(b"\n")
    with pytest.raises(ApplicationError, match="is empty"):
        resolve(f"file:{tmp_path / 'empty'}")
