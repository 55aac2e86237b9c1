#!/usr/bin/env python3
"""What the first pages show is what there is: quoted C++ is the example's, links and programs exist."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def lines_of(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


class Readme(unittest.TestCase):
    def test_quotes_examples_that_are_built(self):
        # Of the pages that quote whole examples; docs/transfer-engine.md shows the first of them.
        pages = [README, (ROOT / "docs/transfer-engine.md").read_text(encoding="utf-8")]
        quoted = [code for page in pages for code in re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)]
        self.assertGreater(len(quoted), 0)
        examples = ["\n".join(lines_of(path.read_text(encoding="utf-8")))
                    for path in sorted((ROOT / "examples").glob("*/main.cpp"))]
        for code in quoted:
            text = "\n".join(lines_of(code))
            self.assertTrue(any(text in example for example in examples), text)

    def test_links_lead_somewhere(self):
        for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
            for link in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
                if not link.startswith("http"):
                    self.assertTrue((document.parent / link).exists(), f"{document.name}: {link}")

    def test_the_architecture_names_files_that_exist(self):
        text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
        named = re.findall(r"`((?:apps|bench|docs|framework|include|python|scripts|src|tests)/[\w./-]+)`", text)
        self.assertGreater(len(named), 100)
        self.assertEqual([name for name in named if not (ROOT / name).exists()], [])

    def test_the_guarantees_name_tests_that_exist(self):
        text = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
        table, _, listed = text.partition("\n## Tests\n")
        names = re.findall(r"^\d+\. `([\w.]+)`$", listed, re.MULTILINE)
        self.assertGreater(len(names), 40)
        exist = set()
        for path in (ROOT / "tests").rglob("*.cpp"):
            exist.update(map(".".join, re.findall(r"TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(encoding="utf-8"))))
        for path in (ROOT / "python/tests").glob("test_*.py"):
            exist.update(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        self.assertEqual([name for name in names if name not in exist], [])
        rows = re.findall(r"^\| .* \| [\w ]+ \| ([\d, ]+|-) \|$", table, re.MULTILINE)
        used = {int(number) for row in rows if row != "-" for number in row.split(",")}
        self.assertEqual(used, set(range(1, len(names) + 1)))

    def test_make_targets_exist(self):
        targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        for target in re.findall(r"^make ([a-z]+)", README, re.MULTILINE):
            self.assertIn(target, targets)


if __name__ == "__main__":
    unittest.main()
