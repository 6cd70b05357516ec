"""What a shared library asks for and offers, read by binutils' readelf."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple


class Symbol(NamedTuple):
    """One dynamic symbol; `version` is empty where the library gives none."""

    name: str
    version: str
    kind: str  # FUNC, OBJECT, NOTYPE, TLS
    weak: bool
    defined: bool


def needed(library: Path) -> set[str]:
    """The sonames that the library loads."""
    return set(re.findall(r"NEEDED.*\[(.*?)\]", _readelf("-Wd", library)))


def symbols(library: Path) -> list[Symbol]:
    """The library's dynamic symbols, undefined ones included."""
    found = []
    for line in _readelf("-W", "--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":") or fields[0] == "Num:":
            continue
        name, _, version = fields[7].partition("@")
        found.append(Symbol(name, version.lstrip("@"), fields[3], fields[4] == "WEAK", fields[6] != "UND"))
    return found


def _readelf(*arguments: str | Path) -> str:
    return subprocess.run(["readelf", *map(str, arguments)], capture_output=True, text=True, check=True).stdout
