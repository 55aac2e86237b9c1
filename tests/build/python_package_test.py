"""Tests of what the build of the Python package says when torch cannot be used, on made-up wheels."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


class PythonPackageTest(unittest.TestCase):
    def configure(self, version: str, libraries: list[str]) -> str:
        """What CMake says while it fails."""
        with tempfile.TemporaryDirectory() as folder:
            torch = Path(folder) / "torch"
            (torch / "lib").mkdir(parents=True)
            (torch / "version.py").write_text(f"__version__ = '{version}'\ncuda: Optional[str] = None\n", "utf-8")
            for library in libraries:
                (torch / f"lib/lib{library}.so").write_text("_ZN3c10NSt7__cxx1112basic_stringE\n", "utf-8")
            highs = Path(folder) / "highs"
            (highs / "include/highs").mkdir(parents=True)
            numbers = zip(["MAJOR", "MINOR", "PATCH"], ["1", "15", "1"])
            lines = [f"#define HIGHS_VERSION_{name} {number}\n" for name, number in numbers]
            (highs / "include/highs/HConfig.h").write_text("".join(lines), "utf-8")
            (highs / "lib").mkdir()
            (highs / "lib/libhighs.so").touch()
            answer = subprocess.run(
                ["cmake", "-S", str(ROOT), "-B", f"{folder}/build", "-DSPILLWAY_PYTHON_MODULE=ON"]
                + ["-DSPILLWAY_TESTS=OFF", "-DSPILLWAY_BENCH=OFF", "-DSPILLWAY_APPS=OFF"]
                + [f"-DPython3_EXECUTABLE={sys.executable}", f"-DSpillwayTorch_ROOT={torch}", f"-DSpillwayHighs_ROOT={highs}"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
        self.assertNotEqual(answer.returncode, 0, answer.stdout)
        return " ".join(answer.stdout.split())

    def test_an_older_torch_is_an_error_that_says_both_versions(self) -> None:
        output = self.configure("2.9.1+cpu", ["c10", "torch_cpu", "torch"])
        self.assertIn('Found unsuitable version "2.9.1", but required is at least "2.11"', output)

    def test_a_newer_torch_is_an_error_that_says_what_to_install(self) -> None:
        output = self.configure("2.12.0+cpu", ["c10", "torch_cpu", "torch"])
        self.assertIn("The Python package is for torch 2.11, but the torch of", output)
        self.assertIn("is 2.12.0: install torch==2.11.* there first", output)

    def test_an_incomplete_torch_is_an_error_that_names_the_missing_file(self) -> None:
        output = self.configure("2.11.0+cpu", ["c10", "torch"])
        self.assertIn("torch/lib/libtorch_cpu.so is not there", output)

    def test_a_torch_without_its_python_half_is_an_error_that_names_the_missing_file(self) -> None:
        output = self.configure("2.11.0+cpu", ["c10", "torch_cpu", "torch"])
        self.assertIn("torch/lib/libtorch_python.so is not there", output)


if __name__ == "__main__":
    unittest.main()
