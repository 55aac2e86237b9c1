"""Tests of tests/support/check_json.py: what holds passes, and every way of not holding fails."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.dont_write_bytecode = True
import check_json  # noqa: E402


def figure(name: str, median: Any, different: int | None = None, limit: float | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"id": name, "median": median}
    if different is not None:
        made["beside"] = {"gradients that differ": {"median": different}}
    if limit is not None:
        made["wanted"] = {"limit": limit}
    return made


REPORT = {
    "bench": "budget",
    "settings": {"small": True, "fallbacks": {}},
    "figures": [
        figure("budget.whole_way", 1.25, different=0),
        figure("budget.whole_way_peak", 0.5, limit=0.75),
        figure("budget.70%", 1.5, different=0),
        figure("budget.70%_peak", 0.75, limit=0.75),
        figure("budget.base_peak", 1),
    ],
}
BITS = "figures/id=budget.{whole_way,70%}/beside/gradients that differ/median == 0"
ALL_BITS = "figures/*/beside?/gradients that differ/median == 0"
PEAKS = "figures/id=budget.{whole_way,70%}_peak/median <= ../wanted/limit"


class CheckJsonTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.file = self.folder / "report.json"
        self.report = copy.deepcopy(REPORT)

    def main(self, *arguments: str) -> tuple[int, str]:
        """The exit code, and what was printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                code = check_json.main(list(arguments))
            except SystemExit as ended:
                code = int(ended.code or 0)
        return code, printed.getvalue()

    def check(self, *checks: str) -> tuple[int, str]:
        self.file.write_text(json.dumps(self.report), encoding="utf-8")
        return self.main(str(self.file), *checks)

    def holds(self, *checks: str) -> None:
        code, text = self.check(*checks)
        self.assertEqual(code, 0, text)

    def fails(self, check: str, *texts: str) -> None:
        code, text = self.check(check)
        self.assertEqual(code, 1, text)
        for each in (check, *texts):
            self.assertIn(each, text)

    def test_what_holds_passes(self) -> None:
        self.holds(
            BITS, ALL_BITS, PEAKS, 'bench == "budget"', "settings/small == true", "settings/fallbacks == {}",
            "figures/*/median is number", "figures/0/median > 1", "figures/*/median != 0", "figures is list",
            "figures/id=budget.*_peak/median <= /figures/id=budget.base_peak/median",
        )  # fmt: skip

    def test_one_bad_row_among_good_ones_fails(self) -> None:
        self.report["figures"][2]["beside"]["gradients that differ"]["median"] = 3
        place = "figures/id=budget.70%/beside/gradients that differ/median is 3"
        self.fails(BITS, place)
        self.fails(ALL_BITS, "figures/2/beside/gradients that differ/median is 3")

    def test_a_missing_row_fails(self) -> None:
        del self.report["figures"][0]
        self.fails(BITS, "figures has no id=budget.whole_way")

    def test_a_row_without_the_value_fails(self) -> None:
        del self.report["figures"][0]["beside"]["gradients that differ"]
        self.fails(BITS, "figures/id=budget.whole_way/beside has no gradients that differ")
        self.fails(ALL_BITS, "figures/0/beside has no gradients that differ")

    def test_an_optional_key_that_is_nowhere_fails(self) -> None:
        for each in self.report["figures"]:
            each.pop("beside", None)
        self.fails(ALL_BITS, "there is no such value")
        self.report["figures"] = []
        self.fails("figures/*/median > 0", "figures has no *")

    def test_a_peak_above_its_budget_fails(self) -> None:
        self.report["figures"][3]["median"] = 0.76
        self.fails(PEAKS, "budget.70%_peak/median is 0.76, and ../wanted/limit is 0.75")

    def test_a_limit_that_is_missing_or_not_one_value_fails(self) -> None:
        del self.report["figures"][3]["wanted"]
        self.fails(PEAKS, "figures/id=budget.70%_peak has no wanted")
        self.fails("figures/0/median < /figures/*/median", "/figures/*/median is 5 values, one is wanted")

    def test_types_are_kept_apart(self) -> None:
        for check in ("settings/small == 1", "settings/small > 0", "bench > 0", "settings is list", "bench is number"):
            with self.subTest(check):
                self.fails(check)
        self.report["figures"][0]["median"] = None  # As JSON has infinities and what is no number.
        for check in ("figures/*/median is number", "figures/*/median > 0", "figures/*/median <= 9"):
            with self.subTest(check):
                self.fails(check, "figures/0/median is null")

    def test_every_problem_is_said(self) -> None:
        code, text = self.check("figures/*/median > 1", 'bench == "layers"', "nothing is list")
        self.assertEqual(code, 1)
        self.assertEqual(text.count("error: "), 5, text)

    def test_what_is_no_json_fails(self) -> None:
        for text in ("", "no kernels\n", '{"median": NaN}', '{"median": 1} and more'):
            self.file.write_text(text, encoding="utf-8")
            with self.subTest(text):
                code, said = self.main(str(self.file), "median is number")
                self.assertEqual(code, 1)
                self.assertIn("report.json is no JSON", said)
        self.assertEqual(self.main(str(self.folder / "nowhere.json"), "a is list")[0], 1)

    def run_program(self, program: str, *checks: str, file: str | None = None) -> tuple[int, str]:
        return self.main(file or str(self.file), *checks, "--", sys.executable, "-c", program, str(self.file))

    def test_a_program_is_run_and_what_it_wrote_is_checked(self) -> None:
        writes = "import sys; open(sys.argv[1], 'w').write('{\"steps\": 3}')"
        self.assertEqual(self.run_program(writes, "steps == 3")[0], 0)
        self.assertEqual(self.run_program(writes, "steps == 4")[0], 1)
        self.assertEqual(self.run_program("print('[1, 2]')", "* > 0", file="-"), (0, "[1, 2]\n1 checks hold\n"))
        self.assertEqual(self.run_program("print('[1, -2]')", "* > 0", file="-")[0], 1)

    def test_a_program_that_fails_or_writes_nothing_fails(self) -> None:
        self.file.write_text('{"steps": 3}', encoding="utf-8")  # By an earlier run.
        code, text = self.run_program("pass", "steps == 3")
        self.assertEqual(code, 1, text)
        code, text = self.run_program("import sys; open(sys.argv[1], 'w').write('{\"steps\": 3}'); sys.exit(4)", "steps == 3")
        self.assertEqual(code, 1)
        self.assertIn("ended with 4", text)
        self.assertEqual(self.main(str(self.file), "steps == 3", "--", str(self.folder / "no-program"))[0], 1)

    def test_lines_that_cannot_be_understood_are_refused(self) -> None:
        for check, text in (
            ("figures", "is no check: PATH OPERATOR VALUE wanted"),
            ("figures = 3", "is no check"),
            ("figures is array", '"array" is no type; there are number, text, bool, list, object'),
            ("bench == budget", '"budget" is no JSON; quote texts'),
            ("/ == 3", '"/" is no path'),
            ("bench == ../../../bench", "leads out of the file"),
        ):
            with self.subTest(check):
                code, said = self.check(check)
                self.assertEqual(code, 2, said)
                self.assertIn(text, " ".join(said.split()))
        self.assertEqual(self.main(str(self.file))[0], 2)
        self.assertEqual(self.main("-", "a == 1")[0], 2)

    def test_help_says_what_checks_are(self) -> None:
        code, text = self.main("--help")
        self.assertEqual(code, 0)
        for word in ("PATH", "OPERATOR", "gradients that differ", "Exit codes"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
