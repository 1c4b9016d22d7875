"""The state folder."""

from __future__ import annotations

from pathlib import Path

from mainspring.state_folder import state_folder


def test_state_folder_that_we_make_keeps_itself_out_of_git(tmp_path: Path) -> None:
    """Databases and blobs are not committed by mistake."""
    assert (state_folder(tmp_path / "new" / "state") / ".gitignore").read_text() == "*\n"


def test_state_folder_that_was_there_is_left_alone(tmp_path: Path) -> None:
    """A folder of somebody else's may be one that git is to keep."""
    assert list(state_folder(tmp_path).iterdir()) == []
