#!/usr/bin/env python3
"""`spillway config`, as a user runs it."""

import tomllib
import unittest

from plan_files import OnFiles


class Config(OnFiles):
    def test_defaults_are_a_config_with_a_comment_for_every_key(self):
        text = self.ok("config", "--defaults")
        tables = tomllib.loads(text)
        self.assertEqual(list(tables), ["model", "data", "train", "optimizer", "parallel", "memory"])
        self.assertEqual(tables["model"]["layers"], 8)
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if " = " in line and not line.startswith("#"):
                self.assertTrue(lines[number - 1].startswith("# "), line)
        self.assertEqual(self.ok("config", self.write("run.toml", text)), text)

    def test_prints_what_a_file_and_overrides_come_to(self):
        path = self.write("run.toml", '[model]\nlayers = 4\n[[memory.rule]]\nlayers = "0..2"\naction = "offload"\n')
        text = self.ok("config", path, "--set", "model.hidden=128", "--set", "memory.budget=33%")
        tables = tomllib.loads(text)
        self.assertEqual(tables["model"]["layers"], 4)
        self.assertEqual(tables["model"]["hidden"], 128)
        self.assertEqual(tables["memory"]["budget"], "33%")
        self.assertEqual(tables["memory"]["rule"], [{"layers": "0..2", "action": "offload"}])
        self.assertEqual(self.ok("config", self.write("again.toml", text)), text)

    def test_takes_overrides_of_the_defaults(self):
        tables = tomllib.loads(self.ok("config", "--set", "parallel.pipeline=4"))
        self.assertEqual(tables["parallel"]["pipeline"], 4)

    def test_says_what_is_wrong_and_where(self):
        path = self.write("run.toml", "[model]\nlayer = 4\n")
        self.assertEqual(
            self.refused(1, "config", path),
            f'error: [config] {path}:2:1: unknown key "layer" in [model]; did you mean "layers"?\n',
        )
        self.assertEqual(
            self.refused(1, "config", "--set", "model.layers=0"),
            "error: [config] --set model.layers=0: layers = 0 is impossible: it must be at least 1\n",
        )
        self.assertIn("cannot read /nowhere/run.toml", self.refused(1, "config", "/nowhere/run.toml"))

    def test_refuses_lines_without_sense(self):
        for arguments, text in (
            ([], "give a file, --set or --defaults"),
            (["--defaults", "run.toml"], "leave out the file"),
            (["--defaults", "--reference"], "give one"),
            (["--set"], "--set"),
            (["--default"], 'did you mean "--defaults"?'),
        ):
            self.assertIn(text, self.refused(2, "config", *arguments))

    def test_help_has_examples(self):
        text = self.ok("config", "--help")
        for part in ("--defaults", "--set", "Examples:", "docs/train.md"):
            self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
