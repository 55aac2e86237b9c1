#!/usr/bin/env python3
"""bench_transfer --quick on the host device: the shape of what it prints and writes, never its times."""

import json
import re
import tempfile
import unittest
from pathlib import Path

from program import run

MODES = ("out", "back", "both")


class BenchTransfer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            out, markdown = Path(folder) / "new" / "result.json", Path(folder) / "result.md"
            cls.result = run(
                "bench_transfer", "--quick", "--device", "host", "--sizes", "64KiB,1MiB", "--area", "8 MiB",
                "--repeats", "2", "--out", str(out), "--markdown", str(markdown), "--commit", "abc123",
            )  # fmt: skip
            cls.report = json.loads(out.read_text()) if out.exists() else None
            cls.markdown = markdown.read_text() if markdown.exists() else None

    def test_ends_well_and_writes_both_files(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        self.assertIsNotNone(self.report)
        self.assertIsNotNone(self.markdown)

    def test_says_where_and_how_it_was_made(self):
        self.assertEqual(self.report["schema"], "spillway.bench/1")
        self.assertEqual(self.report["bench"], "transfer")
        self.assertEqual(self.report["commit"], "abc123")
        self.assertTrue(self.report["command"].startswith("bench_transfer --quick --device host"))
        self.assertRegex(self.report["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(self.report["hardware"]["device"], "host")
        for key in ("gpu", "cpu", "cores", "memory_bytes", "system"):
            self.assertIn(key, self.report["hardware"])
        self.assertEqual(self.report["settings"]["sizes"], [65536, 1048576])

    def test_has_every_figure_once(self):
        wanted = [f"throughput.{mode}.{size}" for size in (65536, 1048576) for mode in MODES]
        wanted += ["host_cost.step_small", "host_cost.step_large", "host_cost.alone_small", "slab_cost.pair"]
        wanted += ["footprint.same_length", "footprint.mixed_length"]
        wanted += ["pinning.seconds_per_gib", "pinning.caller_share"]
        self.assertEqual([figure["id"] for figure in self.report["figures"]], wanted)

    def test_gives_median_and_spread_of_each_figure(self):
        for figure in self.report["figures"]:
            for values in (figure, *figure.get("beside", {}).values()):
                self.assertLessEqual(values["min"], values["median"])
                self.assertLessEqual(values["median"], values["max"])
                self.assertGreaterEqual(values["samples"], 1)
            if figure["id"].startswith("throughput."):
                self.assertEqual(figure["samples"], 2)
                self.assertEqual(list(figure["beside"]), ["bare copies", "engine"])

    def test_judges_nothing_that_is_meant_for_a_gpu(self):
        for figure in self.report["figures"]:
            if figure["id"].startswith(("throughput", "host_cost", "pinning")) and "wanted" in figure:
                self.assertEqual(figure["wanted"]["verdict"], "not judged")

    def test_wastes_next_to_nothing_of_the_slab_on_transformer_layers(self):
        figure = next(each for each in self.report["figures"] if each["id"] == "footprint.same_length")
        self.assertEqual(figure["wanted"]["verdict"], "ok")

    def test_wants_97_percent_only_from_1_mib_on(self):
        for figure in self.report["figures"]:
            if figure["id"].endswith(".65536"):
                self.assertNotIn("wanted", figure)
            if figure["id"].endswith(".1048576"):
                self.assertEqual(figure["wanted"]["limit"], 97)

    def test_prints_and_keeps_the_same_table(self):
        rows = [line.split("|")[1].strip() for line in self.markdown.splitlines() if line.startswith("| ")]
        texts = [figure["text"] for figure in self.report["figures"]]
        for text in texts:
            self.assertIn(text, self.result.stdout)
            self.assertEqual(rows.count(text), texts.count(text), text)
        self.assertIn("commit: abc123", self.markdown)
        self.assertIn("compared byte by byte", self.result.stdout)


class WrongCommandLine(unittest.TestCase):
    def test_a_copy_larger_than_the_area_is_an_error_that_says_why(self):
        result = run("bench_transfer", "--quick", "--device", "host", "--sizes", "1GiB", "--only", "throughput")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"error: \[link test\] copies of 1073741824 bytes wanted; .*at most")

    def test_an_unknown_measurement_gives_those_there_are(self):
        result = run("bench_transfer", "--only", "everything")
        self.assertEqual(result.returncode, 2)
        self.assertTrue(re.search("throughput.*pinning", result.stderr), result.stderr)

    def test_a_result_that_cannot_be_written_is_an_error_with_the_path(self):
        result = run("bench_transfer", "--quick", "--device", "host", "--only", "footprint", "--out", "/proc/x/y.json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write /proc/x/y.json", result.stderr)


if __name__ == "__main__":
    unittest.main()
