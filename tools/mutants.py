"""The table of `make mutants`: what mutmut left in mutants/, by file, and every mutant that no test noticed."""

import json
import sys
from pathlib import Path

REQUIRED = 0.9
SURVIVED, NO_TESTS = 0, 33
"""Exit codes in mutmut's files; every other one is a mutant that was noticed."""


def main() -> int:
    """Print the table; return 1 if too few mutants were killed, or some were not tried."""
    total, killed, survivors = 0, 0, []
    print("| File | Mutants | Killed | Survived |\n| --- | ---: | ---: | ---: |")
    for path in sorted(Path("mutants").rglob("*.py.meta")):
        codes = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
        if None in codes.values():
            print(f"{path}: some mutants were not tried", file=sys.stderr)
            return 1
        alive = [name for name, code in codes.items() if code in (SURVIVED, NO_TESTS)]
        if codes:
            file = path.relative_to("mutants/src/fedsol").with_suffix("")
            print(f"| `{file}` | {len(codes)} | {len(codes) - len(alive)} | {len(alive)} |")
        total, killed, survivors = total + len(codes), killed + len(codes) - len(alive), survivors + alive
    print(f"| all | {total} | {killed} ({killed / max(total, 1):.1%}) | {total - killed} |\n")
    print("\n".join(survivors))
    return 0 if total and killed / total >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
