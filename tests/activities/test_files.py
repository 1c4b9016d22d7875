"""The built-in file tools: what they show, and that nothing leads out of their folder."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainspring.activities.files import Folder, file_tools
from mainspring.activities.functions import ToolContext, ToolError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a little of everything, beside a secret that is none of its business."""
    (tmp_path / "secret.txt").write_text("the secret")
    root = tmp_path / "root"
    for name, text in {
        "README.md": "# Title\n\nSome text.\n",
        "src/a.py": "import os\nprint('Hello')\n",
        "src/deep/b.py": "print('hello again')\n",
        ".git/config": "hello of git\n",
        ".env": "hello of env\n",
        "data.csv": "a,b\n1,2\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "logo.png").write_bytes(b"\x89PNG\x00\x00hello")
    return root


Tool = Callable[..., Any]


@pytest.fixture
def use(root: Path) -> Tool:
    """Call one of the tools by the last part of its name."""

    async def used(name: str, **arguments: Any) -> str:
        found = {made.name: made for made in file_tools(root)}[f"files/{name}"]
        text: str = await found.invoke(arguments, ToolContext())
        return text

    return used


def test_file_tools_declare_that_they_only_read(root: Path) -> None:
    """They read the present world, may be repeated, and belong to the engine."""
    for made in file_tools(root):
        declaration = made.declaration
        assert (declaration.effects, declaration.observes, declaration.idempotent) == ("read", True, True)
        assert declaration.source == "builtin"


# --- confinement -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["read", "list", "search"])
@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "..", "src/../../secret.txt", "/etc/passwd", "out", "out/secret.txt", "door.txt"],
)
async def test_no_path_leads_out(use: Tool, root: Path, name: str, path: str) -> None:
    """Neither dots, nor an absolute path, nor a link leads out of the folder."""
    (root / "out").symlink_to(root.parent)
    (root / "door.txt").symlink_to(root.parent / "secret.txt")
    arguments = {"path": path} | ({"pattern": "secret"} if name == "search" else {})
    with pytest.raises(ToolError, match="outside of the folder"):
        await use(name, **arguments)


async def test_link_inside_the_folder_is_followed(use: Tool, root: Path) -> None:
    """A link whose target lies in the folder is a path like any other."""
    (root / "link").symlink_to("src")
    assert "import os" in await use("read", path="link/a.py")


def test_link_put_in_place_of_a_folder_is_not_followed(root: Path) -> None:
    """A folder that becomes a link after it was resolved is refused, not followed."""
    folder = Folder(root)
    resolved = folder.resolve("src/a.py")
    (root / "src").rename(root / "gone")
    (root / "src").symlink_to(root.parent)
    (root.parent / "a.py").write_text("the secret")
    with pytest.raises(ToolError), folder.open_file(resolved):
        pass


def test_link_put_in_place_of_a_file_is_not_followed(root: Path) -> None:
    """A file that becomes a link after it was resolved is refused, not followed."""
    folder = Folder(root)
    resolved = folder.resolve("README.md")
    (root / "README.md").unlink()
    (root / "README.md").symlink_to(root.parent / "secret.txt")
    with pytest.raises(ToolError), folder.open_file(resolved):
        pass


async def test_only_regular_files_are_read(use: Tool, root: Path) -> None:
    """A pipe, a socket and a folder are named as what they are not; none of them is waited for."""
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(root / "socket"))
        started = time.monotonic()
        for path in ("pipe", "socket", "src"):
            with pytest.raises(ToolError):
                await use("read", path=path)
        assert "pipe" not in await use("search", pattern="hello")
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("path", ["nope.txt", "src/nope/x", "README.md/x", "a\x00b", "x" * 5_000, ""])
async def test_path_that_is_none_is_an_error_without_a_machine_path(use: Tool, root: Path, path: str) -> None:
    """What is not there is an error for the model, which names no path of this machine."""
    with pytest.raises(ToolError) as refused:
        await use("read", path=path)
    assert str(root) not in str(refused.value)


# --- reading ---------------------------------------------------------------------------------------------


async def test_read_gives_the_text(use: Tool) -> None:
    """A short file is its text, and nothing else."""
    assert await use("read", path="README.md") == "# Title\n\nSome text."


async def test_read_pages_through_a_long_file(use: Tool, root: Path) -> None:
    """Following the last line of each page gives every line once, each page below the spill bound."""
    lines = [f"line {n} " + "x" * (n % 70) for n in range(3_000)]
    (root / "long.txt").write_text("\n".join(lines))
    read: list[str] = []
    offset = 1
    while True:
        page = (await use("read", path="long.txt", offset=offset)).split("\n")
        assert len("\n".join(page).encode()) < 16_384
        if "go on with offset=" not in page[-1]:
            break
        assert "of 3000;" in page[-1]
        read += page[:-1]
        offset = int(page[-1].rpartition("=")[2].rstrip("]"))
    assert read + page[:-1] == lines
    assert page[-1].endswith("-3000; the end]")


async def test_read_limit_and_numbers(use: Tool) -> None:
    """A page may be shorter, and its lines may carry their numbers."""
    page = await use("read", path="README.md", offset=1, limit=2, line_numbers=True)
    assert page == "     1  # Title\n     2  \n[lines 1-2 of 3; go on with offset=3]"


async def test_read_beyond_the_end_says_how_long_the_file_is(use: Tool) -> None:
    """There is no silence beyond the end."""
    with pytest.raises(ToolError, match=r"README\.md has 3 lines; there is no line 9"):
        await use("read", path="README.md", offset=9)


async def test_read_clips_a_line_without_end(use: Tool, root: Path) -> None:
    """A file of one huge line gives its head and says what was left out."""
    (root / "min.js").write_text("x" * 5_000_000 + "\nnext")
    head, following = (await use("read", path="min.js")).split("\n")
    assert len(head) < 9_000
    assert "4,992,001 bytes of this line left out" in head
    assert following == "next"


async def test_read_names_a_binary_file(use: Tool) -> None:
    """A binary file is named with its type and size, not dumped."""
    assert await use("read", path="logo.png") == "[binary file logo.png: image/png, 11 bytes]"


@pytest.mark.parametrize(
    ("raw", "text"), [(b"", "[empty file]"), (b"\xef\xbb\xbfa\r\nb\r\n", "a\nb"), (b"caf\xe9", "caf\ufffd")]
)
async def test_read_is_text_whatever_the_bytes(use: Tool, root: Path, raw: bytes, text: str) -> None:
    """Marks, line ends and foreign encodings become plain text."""
    (root / "odd.txt").write_bytes(raw)
    assert await use("read", path="odd.txt") == text


# --- listing ---------------------------------------------------------------------------------------------


async def test_list_is_sorted_and_leaves_out_hidden_names(use: Tool, root: Path) -> None:
    """One level, sorted, folders and links marked; hidden names only when asked for."""
    (root / "to").symlink_to("README.md")
    assert await use("list") == "README.md\ndata.csv\nlogo.png\nsrc/\nto@"
    assert (await use("list", hidden=True)).split("\n")[:2] == [".env", ".git/"]


async def test_list_goes_as_deep_as_it_is_told(use: Tool) -> None:
    """Deeper levels follow their folder's own, by paths that can be read."""
    assert (await use("list", path="src", depth=2)).split("\n") == ["src/a.py", "src/deep/", "src/deep/b.py"]


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["src/a.py", "src/deep/b.py"]),
        ("**/*.py", ["src/a.py", "src/deep/b.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/b.py"]),
        ("*.rs", ["[nothing]"]),
    ],
)
async def test_list_by_glob(use: Tool, glob: str, found: list[str]) -> None:
    """A glob looks at every level; a star stays within a name, two cross folders or none."""
    assert (await use("list", glob=glob)).split("\n") == found


async def test_list_is_bounded(use: Tool, root: Path) -> None:
    """A huge folder is cut off, and says so."""
    (root / "many").mkdir()
    for n in range(700):
        (root / "many" / f"{n:04}").touch()
    lines = (await use("list", path="many")).split("\n")
    assert len(lines) == 501
    assert "more than 500" in lines[-1]


async def test_list_of_a_file_is_an_error(use: Tool) -> None:
    """A file is no folder."""
    with pytest.raises(ToolError, match=r"README\.md"):
        await use("list", path="README.md")


# --- searching -------------------------------------------------------------------------------------------


async def test_search_is_literal(use: Tool) -> None:
    """A pattern is text unless it is said to be an expression; hidden and binary files are passed over."""
    assert await use("search", pattern="print('") == (
        "src/a.py:2: print('Hello')\nsrc/deep/b.py:1: print('hello again')"
    )
    assert await use("search", pattern="p.int") == "[no line matches in 4 files]"


async def test_search_can_ignore_case(use: Tool) -> None:
    """Case counts unless it is ignored, in both kinds of pattern."""
    for regex in (False, True):
        assert "a.py" not in await use("search", pattern="hello", regex=regex)
        assert "a.py" in await use("search", pattern="hello", regex=regex, ignore_case=True)


async def test_search_by_expression(use: Tool) -> None:
    """An expression is Python's."""
    assert await use("search", pattern=r"^\w+ os$", regex=True) == "src/a.py:1: import os"


async def test_search_in_one_file_or_by_glob(use: Tool) -> None:
    """A search is narrowed down by path and glob."""
    assert (
        await use("search", pattern="hello", path="src/deep/b.py") == "src/deep/b.py:1: print('hello again')"
    )
    assert "README" not in await use("search", pattern="e", glob="*.py")


async def test_search_is_bounded(use: Tool, root: Path) -> None:
    """More matches than asked for are cut off, and it says so; long lines are clipped."""
    (root / "many.txt").write_text("\n".join(["match " + "x" * 1_000] * 500))
    lines = (await use("search", pattern="match", limit=10)).split("\n")
    assert len(lines) == 11
    assert "more than 10 lines match" in lines[-1]
    assert max(map(len, lines)) < 400


async def test_search_with_a_hostile_expression_ends(use: Tool, root: Path) -> None:
    """An expression that backtracks for ever is ended, with an answer."""
    (root / "aaa.txt").write_text("a" * 60 + "!\n")
    started = time.monotonic()
    assert "takes too long" in await use("search", pattern="(a|a)*$", regex=True, path="aaa.txt")
    assert time.monotonic() - started < 40


@pytest.mark.parametrize("pattern", ["(", "*a", "(?P<n", "a{99999999999999999999}", "[z-a]"])
async def test_search_refuses_what_is_no_expression(use: Tool, pattern: str) -> None:
    """A broken expression is the model's to mend, with the reason."""
    with pytest.raises(ToolError, match="is not a pattern"):
        await use("search", pattern=pattern, regex=True)
