"""The tool that plants faults plants what it says, and no text that does not parse."""

from pathlib import Path

from tests.support.mutants import mirror_of, mutants_of
from tests.support.parsed import parsed

SOURCE = '''"""A module."""

def take(self, held: int, most: int) -> int:
    """Doc."""
    if held is not None and held < most:
        self.count += 1
        self.tell("é", held)
    return most - held
'''


def test_each_kind_of_fault_is_planted_at_its_line() -> None:
    source = SOURCE.encode()
    planted = {(mutant.line, mutant.what): mutant.apply(source).decode() for mutant in mutants_of(Path("a.py"), source)}

    assert set(planted) == {
        (5, "is not became is"), (5, "< became <="), (5, "never holds"), (5, "always holds"),
        (6, "dropped"), (7, "dropped"), (8, "- became +"),
    }  # fmt: skip
    assert "held is None and held < most" in planted[5, "is not became is"]
    assert "if False:" in planted[5, "never holds"]
    assert "return most + held" in planted[8, "- became +"]
    for text in planted.values():
        parsed(text)
        assert text != SOURCE


def test_the_tests_of_a_file_are_those_that_mirror_its_folder() -> None:
    assert mirror_of(Path("rmq/broker/groups/offsets.py")) == ["tests/unit/broker/groups"]
    assert mirror_of(Path("rmq/spark/pipeline/running/runner.py")) == ["tests/unit/spark/pipeline"]
