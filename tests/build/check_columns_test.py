"""Tests of scripts/check_columns.py: lines that are too long are found by kind of file, as people count columns."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/check_columns.py"
sys.path.insert(0, str(SCRIPT.parent))
sys.dont_write_bytecode = True
from check_columns import findings_in, is_checked  # noqa: E402
from checked_files import ROOT  # noqa: E402


class ColumnsTest(unittest.TestCase):
    def check(self, name: str, text: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / name
            file.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True)
            return done.returncode, done.stdout.replace(f"{Path(folder).resolve().as_posix()}/", "")

    def test_a_line_of_markdown_has_at_most_120_columns(self) -> None:
        self.assertEqual(self.check("a.md", "x" * 120 + "\n"), (0, "columns: 1 files, 0 findings\n"))
        self.assertEqual(
            self.check("a.md", "# Title\n\n" + "x" * 121 + "\n"),
            (1, "a.md:3: 121 columns, 120 are allowed: break the line\ncolumns: 1 files, 1 findings\n"),
        )

    def test_a_line_of_cpp_has_at_most_100_columns(self) -> None:
        for name in ("a.cpp", "a.hpp"):
            self.assertEqual(self.check(name, "/" * 100)[0], 0, name)
            code, text = self.check(name, "/" * 101)
            self.assertEqual(code, 1, name)
            self.assertIn(f"{name}:1: 101 columns, 100 are allowed", text)

    def test_characters_are_counted_not_bytes(self) -> None:
        self.assertEqual(list(findings_in(Path("a.md"), "ä" * 120)), [])

    def test_tables_that_benchmarks_write_are_left_out(self) -> None:
        self.assertFalse(is_checked(ROOT / "bench/results/README.md"))
        for name in ("README.md", "CONTRIBUTING.md", "docs/train.md", "src/util/files.cpp"):
            self.assertTrue(is_checked(ROOT / name), name)

    def test_other_files_are_not_looked_at(self) -> None:
        self.assertEqual(self.check("a.json", "x" * 500), (0, "columns: 0 files, 0 findings\n"))


if __name__ == "__main__":
    unittest.main()
