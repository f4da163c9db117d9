"""Random small faults in the code, and which of them the unit tests see: ``make mutants``.

A mutant is one comparison turned round, one guard that never or always holds, one statement dropped, or one sum that
became a difference. Each is tried in a copy of the tree, with the unit tests that mirror its file; what none of them
sees is printed with its line, for somebody to write a test, or to say why it makes no difference.

    python -m tests.support.mutants [--count 100] [--seed 1] [--since REV] [--also tests/fault/test_kills.py] [FILE ...]

Without files it takes those that changed since ``--since`` (HEAD~20 unless told), tests excepted.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support.parsed import parsed

_ROOT = Path(__file__).parents[2]
_TURNED = {
    "<=": "<", "<": "<=", ">=": ">", ">": ">=", "==": "!=", "!=": "==",
    "is not": "is", "is": "is not", "not in": "in", "in": "not in",
}  # fmt: skip
_OPERATOR = re.compile(r"is\s+not|not\s+in|is|in|[<>=!]=|[<>]")
_SECONDS = 240


@dataclass(frozen=True)
class Mutant:
    """One fault: bytes ``start`` to ``stop`` of a file become ``text``."""

    path: Path
    line: int
    start: int
    stop: int
    text: bytes
    what: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text + source[self.stop :]


def mutants_of(path: Path, source: bytes) -> list[Mutant]:
    """Every fault that can be planted in a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def found() -> Iterator[Mutant]:
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                for left, right in itertools.pairwise(sides):
                    low, high = place(left)[1], place(right)[0]
                    match = _OPERATOR.search(source[low:high].decode())
                    if match is not None:
                        turned = _TURNED[" ".join(match[0].split())]
                        what = f"{match[0]} became {turned}"
                        yield Mutant(path, right.lineno, low + match.start(), low + match.end(), turned.encode(), what)
            elif isinstance(node, (ast.If, ast.While)) and _text(node.test) != "TYPE_CHECKING":
                low, high = place(node.test)
                yield Mutant(path, node.lineno, low, high, b"False", "never holds")
                if isinstance(node, ast.If):
                    yield Mutant(path, node.lineno, low, high, b"True", "always holds")
            elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
                low, high = place(node.left)[1], place(node.right)[0]
                sign, other = (b"+", b"-") if isinstance(node.op, ast.Add) else (b"-", b"+")
                at = source.find(sign, low, high)
                if at >= 0:
                    yield Mutant(path, node.lineno, at, at + 1, other, f"{sign.decode()} became {other.decode()}")
            elif _can_go(node):
                low, high = place(node)
                yield Mutant(path, node.lineno, low, high, b"pass", "dropped")

    return list(found())


def _text(node: ast.expr) -> str:
    return ast.unparse(node)


def _can_go(node: ast.AST) -> bool:
    """Whether a statement does something whose absence a test should notice."""
    if isinstance(node, ast.Expr):
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        return isinstance(call, ast.Call) and not _text(call.func).startswith(("log.", "super().__init__"))
    return isinstance(node, (ast.AugAssign, ast.Delete)) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
    )


def mirror_of(path: Path) -> list[str]:
    """The unit tests that mirror a file: its own, where there are such, with all of its folder."""
    folder = Path("tests/unit") / path.relative_to("rmq").parent
    while not (_ROOT / folder).is_dir():
        folder = folder.parent
    return [str(folder)]


def survives(mutant: Mutant, tree: Path, tests: list[str]) -> bool:
    """Whether the tests pass in ``tree`` with this fault in it."""
    file = tree / mutant.path
    source = file.read_bytes()
    file.write_bytes(mutant.apply(source))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--timeout=60", "-p", "no:cacheprovider", *tests],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_bytes(source)
    return done.returncode == 0


def changed_files(since: str) -> list[Path]:
    """Files of the package that changed since a revision."""
    listed = subprocess.run(
        ["git", "diff", "--name-only", "--diff-filter=d", since, "--", "rmq/*.py"],
        cwd=_ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [Path(name) for name in listed.stdout.split()]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="relative to the root of the tree")
    parser.add_argument("--count", type=int, default=100, help="how many mutants (100)")
    parser.add_argument("--seed", type=int, default=None, help="to have the same ones again")
    parser.add_argument("--since", default="HEAD~20", help="a revision: files changed since then (HEAD~20)")
    parser.add_argument("--also", action="append", default=[], metavar="TESTS", help="tests to run with each, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    every = [
        mutant
        for path in options.files or changed_files(options.since)
        for mutant in mutants_of(path, (_ROOT / path).read_bytes())
    ]
    chosen = random.Random(seed).sample(every, min(options.count, len(every)))
    print(f"{len(chosen)} of {len(every)} mutants, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as temp, ThreadPoolExecutor(options.jobs) as pool:
        left_out = shutil.ignore_patterns(".*", "__pycache__", "run", "build")
        trees = [Path(temp) / str(number) for number in range(options.jobs)]
        for tree in trees:
            shutil.copytree(_ROOT, tree, symlinks=True, ignore=left_out)

        def try_share(number: int) -> list[Mutant]:
            seen_by_none = []
            for mutant in chosen[number :: options.jobs]:
                if survives(mutant, trees[number], mirror_of(mutant.path) + options.also):
                    line = (_ROOT / mutant.path).read_bytes().splitlines()[mutant.line - 1].decode().strip()
                    print(f"not seen: {mutant.path}:{mutant.line}: {mutant.what}: {line}", flush=True)
                    seen_by_none.append(mutant)
            return seen_by_none

        survivors = [mutant for share in pool.map(try_share, range(options.jobs)) for mutant in share]
    print(f"{len(chosen) - len(survivors)} seen, {len(survivors)} not")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
