#!/usr/bin/env python3
"""scripts/setup.sh on machines where dpkg, apt-get, sudo and the environment's Python are scripts that write down."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
FAKES = {
    "dpkg-query": 'for name in "$@"; do grep "^$name ii " {folder}/installed; done; true',
    "sudo": 'exec "$@"',
    "apt-get": """[ "$1" = install ] && [ "$2" != -s ] || exit 0
for word in "$@"; do case $word in *=*) echo "${{word%%=*}} ii $(echo "${{word#*=}}" | tr -d '*')" >>{folder}/installed ;; esac; done""",
    "python": """case "$1" in --version) echo Python 3.11.2 ;; -m) shift 2; echo "$@" >>{folder}/pip ;; esac""",
}


def names_in(file):
    lines = (SCRIPTS / file).read_text(encoding="utf-8").splitlines()
    return {re.split("[ =]", line)[0] for line in lines if line.strip() and not line.startswith("#")}


PROGRAM = names_in("debian-packages.txt")
REST = names_in("debian-packages-develop.txt")


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "installed").touch()
        (self.folder / "pip").touch()
        (self.folder / "bin").mkdir()
        for name, text in FAKES.items():
            path = self.folder / "bin" / name
            path.write_text("#!/bin/sh\n" + text.format(folder=self.folder) + "\n", encoding="utf-8")
            path.chmod(0o755)

    def run_setup(self, *words):
        """What is installed now and was not before: Debian packages, and the files that pip read."""
        before = self.installed()
        (self.folder / "pip").write_text("", encoding="utf-8")
        environment = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "SPILLWAY_VENV": str(self.folder)}
        result = subprocess.run([SCRIPTS / "setup.sh", *words], env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("setup: everything is there", result.stdout)
        read = (self.folder / "pip").read_text(encoding="utf-8").split()
        return self.installed() - before, [os.path.basename(file) for file in read if file.endswith(".txt")]

    def installed(self):
        return {line.split()[0] for line in (self.folder / "installed").read_text(encoding="utf-8").splitlines()}

    def test_installs_for_the_demo_what_the_program_needs_and_the_rest_when_it_is_wanted(self):
        self.assertEqual(self.run_setup("demo"), (PROGRAM, ["requirements.txt"]))
        self.assertEqual(self.run_setup("demo"), (set(), []))
        self.assertEqual(self.run_setup(), (REST, ["requirements.txt", "requirements-develop.txt"]))
        self.assertEqual(self.run_setup(), (set(), []))

    def test_installs_nothing_for_the_demo_where_everything_is(self):
        self.assertEqual(self.run_setup(), (PROGRAM | REST, ["requirements.txt", "requirements-develop.txt"]))
        self.assertEqual(self.run_setup("demo"), (set(), []))
        self.assertEqual(self.run_setup(), (set(), []))

    def test_each_is_pinned_once(self):
        self.assertFalse(PROGRAM & REST)
        self.assertFalse(names_in("requirements.txt") & names_in("requirements-develop.txt"))


if __name__ == "__main__":
    unittest.main()
