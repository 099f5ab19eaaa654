"""Writes the man page and the shell completions from the command line's own description.

Everything comes from `xdna_dictate.cli.build_parser`; a test runs this and compares with what is committed.
"""

import argparse
import sys
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from xdna_dictate.cli import build_parser

FOLDER = Path(__file__).parent


def pages() -> dict[str, str]:
    """File name below packaging/ -> its content."""
    parser = build_parser()
    parser.man_short_description = "private speech to text on this computer"  # type: ignore[attr-defined]
    for action in parser._actions:
        if action.dest in ("file", "output"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    names = {"bash": "completions/xdna-dictate.bash", "zsh": "completions/_xdna-dictate", "fish": "completions/xdna-dictate.fish"}
    made = {name: _completion(parser, shell) for shell, name in names.items()}
    return made | {"man/xdna-dictate.1": _man(parser)}


def _completion(parser: argparse.ArgumentParser, shell: str) -> str:
    return str(shtab.complete(parser, shell=shell)).rstrip() + "\n"


def _man(parser: argparse.ArgumentParser) -> str:
    page = Manpage(parser)
    page.date = ""
    page.source = "xdna-dictate"
    page.manual = "User commands"
    return str(page).rstrip() + "\n"


def main() -> int:
    """Write every page that changed."""
    for name, text in pages().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
