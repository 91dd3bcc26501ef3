"""Write docs/commands.md, the reference of every command and option, from the code of the command line."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from fedsol.cli.app import app
from tools.reference import cell, wrapped

INTRODUCTION = """# Commands

Every command with its arguments and options; `fedsol COMMAND --help` shows the same.

- **EXPERIMENT** is a TOML file or a name from `fedsol list experiments`. Without one, commands use
  the quick start.
- Every command also has `--help`, and `--traceback`, which shows the full traceback of an error.
- Exit codes: 0 done, 2 bad input (one message that says what is allowed), 1 anything else, 130
  interrupted after saving.

`make docs` makes this page from the code.
"""
EVERYWHERE = {"--help", "--traceback"}
HEADER = "| | default | meaning |\n|---|---|---|"


def render() -> str:
    """Return the whole page."""
    parts, panel = [INTRODUCTION], None
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    order = {name: place for place, name in enumerate(dict.fromkeys(one.rich_help_panel for one in commands.values()))}
    for command in sorted(commands.values(), key=lambda one: order[one.rich_help_panel]):
        if command.rich_help_panel != panel:
            panel = command.rich_help_panel
            parts.append(f"## {panel}\n")
        for name, one in _leaves(f"fedsol {command.name}", command):
            parts.append(_section(name, one))
    return "\n".join(parts)


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command, or the commands of a group, each with its whole name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for one in command.commands.values():
        yield from _leaves(f"{name} {one.name}", one)


def _section(name: str, command: Any) -> str:
    shown = [one for one in command.params if not EVERYWHERE & set(one.opts)]
    rows = [_row(one) for one in sorted(shown, key=lambda one: one.param_type_name)]  # arguments, then options
    table = "\n".join([HEADER, *rows]) + "\n" if rows else ""
    return f"### `{name}`\n\n{wrapped(command.help)}\n\n{table}".rstrip("\n") + "\n"


def _row(parameter: Any) -> str:
    is_flag = getattr(parameter, "is_flag", False)
    metavar = parameter.make_metavar(typer.Context(typer.main.get_command(app)))
    value = "" if is_flag else metavar.removesuffix(" RANGE")
    if parameter.param_type_name == "argument":
        names = f"`{value}`"
    else:
        names = ", ".join(f"`{one}`" for one in parameter.opts) + (f" `{value}`" if value else "")
    default = "required" if parameter.required else ""
    if not parameter.required and not is_flag and parameter.default not in (None, [], ""):
        default = f"`{parameter.default}`"
    return f"| {cell(names)} | {default} | {cell(parameter.help)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
