"""Tests of cmake/FindSpillwayTorch.cmake on made-up wheels: which targets there are, and what errors say."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CMAKE_FOLDER = Path(__file__).parents[2] / "cmake"
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(find_torch LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH "{CMAKE_FOLDER}")
find_package(SpillwayTorch 2.11 MODULE REQUIRED)
foreach(target IN ITEMS spillway::libtorch spillway::cudart spillway::nccl)
  if(TARGET ${{target}})
    message(STATUS "has ${{target}}")
  endif()
endforeach()
get_target_property(definitions spillway::libtorch INTERFACE_COMPILE_DEFINITIONS)
get_target_property(libraries spillway::libtorch INTERFACE_LINK_LIBRARIES)
message(STATUS "libtorch: ${{definitions}} ${{libraries}}")
if(TARGET spillway::cudart)
  get_target_property(location spillway::cudart IMPORTED_LOCATION)
  message(STATUS "cudart: ${{location}}")
endif()
"""
CPU_LIBRARIES = ["c10", "torch_cpu", "torch"]
CUDA_LIBRARIES = [*CPU_LIBRARIES, "c10_cuda", "torch_cuda"]


class FindTorchTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.site = self.folder / "site-packages"

    def write(self, path: str, text: str = "") -> None:
        file = self.site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def make_wheel(self, version: str, cuda: str | None, libraries: list[str]) -> None:
        self.write("torch/__init__.py", "raise RuntimeError('torch must not be imported to be found')")
        self.write("torch/version.py", f"__version__ = '{version}'\ncuda: Optional[str] = {cuda!r}\nhip = None\n")
        for library in libraries:
            self.write(f"torch/lib/lib{library}.so", "_ZN3c10NSt7__cxx1112basic_stringE\n")

    def configure(self) -> tuple[int, str]:
        project = self.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
        environment = dict(os.environ, SPILLWAY_PYTHON=sys.executable, PYTHONPATH=str(self.site))
        answer = subprocess.run(
            ["cmake", "-S", str(project), "-B", str(self.folder / "build")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        return answer.returncode, " ".join(answer.stdout.split())

    def test_a_cpu_only_torch_gives_libtorch_alone(self) -> None:
        self.make_wheel("2.11.0+cpu", None, CPU_LIBRARIES)
        status, output = self.configure()
        self.assertEqual(status, 0, output)
        self.assertIn("has spillway::libtorch", output)
        self.assertNotIn("has spillway::cudart", output)
        self.assertNotIn("has spillway::nccl", output)
        self.assertIn("_GLIBCXX_USE_CXX11_ABI=1", output)

    def test_a_cuda_13_wheel_gives_the_runtime_of_its_shared_folder(self) -> None:
        self.make_wheel("2.11.0+cu130", "13.0", CUDA_LIBRARIES)
        self.write("nvidia/cu13/include/cuda_runtime_api.h")
        self.write("nvidia/cu13/include/crt/host_defines.h")
        self.write("nvidia/cu13/include/nv/target")
        self.write("nvidia/cu13/lib/libcudart.so.13")
        self.write("nvidia/nccl/include/nccl.h")
        self.write("nvidia/nccl/lib/libnccl.so.2")
        status, output = self.configure()
        self.assertEqual(status, 0, output)
        self.assertIn("has spillway::nccl", output)
        self.assertIn("nvidia/cu13/lib/libcudart.so.13", output)
        self.assertIn("spillway_wheel::torch_cuda", output)

    def test_a_cuda_12_wheel_gives_the_runtime_of_its_own_folder(self) -> None:
        self.make_wheel("2.11.0+cu128", "12.8", CUDA_LIBRARIES)
        self.write("nvidia/cuda_runtime/include/cuda_runtime_api.h")
        self.write("nvidia/cuda_nvcc/include/crt/host_defines.h")
        self.write("nvidia/cuda_cccl/include/nv/target")
        self.write("nvidia/cuda_runtime/lib/libcudart.so.12")
        status, output = self.configure()
        self.assertEqual(status, 0, output)
        self.assertIn("nvidia/cuda_runtime/lib/libcudart.so.12", output)

    def test_a_cuda_wheel_without_the_runtime_is_an_error_that_says_where_it_should_be(self) -> None:
        self.make_wheel("2.11.0+cu130", "13.0", CUDA_LIBRARIES)
        status, output = self.configure()
        self.assertNotEqual(status, 0)
        self.assertIn("2.11.0 is a build for CUDA 13.0, but these files are not below", output)
        self.assertIn("nvidia: cuda_runtime_api.h crt/host_defines.h nv/target libcudart.so.13.", output)

    def test_a_runtime_whose_headers_lack_one_that_they_include_is_an_error_that_names_it(self) -> None:
        self.make_wheel("2.11.0+cu130", "13.0", CUDA_LIBRARIES)
        self.write("nvidia/cu13/include/cuda_runtime_api.h")
        self.write("nvidia/cu13/include/nv/target")
        self.write("nvidia/cu13/lib/libcudart.so.13")
        status, output = self.configure()
        self.assertNotEqual(status, 0)
        self.assertIn("nvidia: crt/host_defines.h. Run scripts/setup.sh", output)

    def test_an_incomplete_wheel_is_an_error_that_names_the_missing_file(self) -> None:
        self.make_wheel("2.11.0+cpu", None, ["c10", "torch"])
        status, output = self.configure()
        self.assertNotEqual(status, 0)
        self.assertIn("torch/lib/libtorch_cpu.so is not there", output)

    def test_an_older_torch_is_an_error_that_says_both_versions(self) -> None:
        self.make_wheel("2.9.1+cpu", None, CPU_LIBRARIES)
        status, output = self.configure()
        self.assertNotEqual(status, 0)
        self.assertIn('Found unsuitable version "2.9.1", but required is at least "2.11"', output)

    def test_a_python_without_torch_is_an_error_that_says_what_to_type(self) -> None:
        # Hides the torch that this Python may have.
        self.write("sitecustomize.py", "import sys\nsys.modules['torch'] = None\n")
        status, output = self.configure()
        self.assertNotEqual(status, 0)
        self.assertIn("Python package torch:", output)
        self.assertIn("has none. Run scripts/setup.sh", output)
        self.assertIn("-DSPILLWAY_PYTHON=", output)


if __name__ == "__main__":
    unittest.main()
