#!/usr/bin/env python3
"""Old names of options and of keys, as a user's scripts still have them: they work and warn once."""

import tempfile
import unittest
from pathlib import Path

from program import run

WARNING = 'spillway: warning: {} "{}" is now called "{}"; the old name works for one more release\n'
BASELINE = WARNING.format("option", "--plain", "--baseline")  # old name
# One layer that takes no time. Without torch the command ends with an error after its options were read.
TINY = ["--layers", "1", "--hidden", "32", "--heads", "2", "--kv-heads", "2", "--ffn", "32", "--tokens", "16", "--vocabulary", "16", "--steps", "1", "--device", "host"]


def without_torch(result):
    return "was built without torch" in result.stderr


class OldOption(unittest.TestCase):
    def test_trains_the_baseline_with_one_warning(self):
        old = run("spillway", "train", *TINY, "--digest", "--plain", "--plain")  # old name
        new = run("spillway", "train", *TINY, "--digest", "--baseline")
        self.assertEqual(old.stderr.count(BASELINE), 1, old.stderr)
        self.assertNotIn("warning", new.stderr)
        self.assertEqual(old.returncode, new.returncode, old.stderr)
        digests = [[line for line in each.stdout.splitlines() if line.startswith("digest: ")] for each in (old, new)]
        self.assertEqual(digests[0], digests[1])
        if not without_torch(new):
            self.assertEqual(len(digests[0]), 1, old.stdout + old.stderr)

    def test_is_not_in_help(self):
        text = run("spillway", "train", "--help").stdout
        self.assertIn("--baseline", text)
        self.assertNotIn("--plain", text)  # old name

    def test_excludes_what_the_new_one_excludes(self):
        for name in ("--plain", "--baseline"):  # old name
            result = run("spillway", "train", name, "--compare")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("error: --baseline excludes --compare\n", result.stderr)

    def test_is_not_suggested(self):
        result = run("spillway", "train", "--plai")
        self.assertEqual(result.returncode, 2)
        self.assertIn('unknown option "--plai"', result.stderr)
        self.assertNotIn('"--plain"', result.stderr)  # old name


class OldKeys(unittest.TestCase):
    def test_of_a_config_are_read_with_one_warning_each(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.toml"
            file.write_text('[memory.limits]\nin_flight = "1 MiB"\nahead = "2 MiB"\n', encoding="utf-8")  # old name
            result = run("spillway", "config", str(file))
        self.assertEqual(result.returncode, 0, result.stderr)
        warnings = WARNING.format("config key", "in_flight", "offload_window") + WARNING.format("config key", "ahead", "prefetch_window")  # old name
        self.assertEqual(result.stderr, warnings)


if __name__ == "__main__":
    unittest.main()
