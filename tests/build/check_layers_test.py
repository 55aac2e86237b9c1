"""Tests of scripts/check_layers.py: each kind of violation, planted in a small tree, is found with file, line and reason."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
sys.dont_write_bytecode = True
import check_layers  # noqa: E402


class LayersTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("include/spillway/core/bytes.hpp", "#pragma once\n#include <string>\n")
        self.write("include/spillway/memory/slab.hpp", '#pragma once\n#include "spillway/core/bytes.hpp"\n')
        self.write("src/core/CMakeLists.txt", "spillway_add_part(core SOURCES bytes.cpp)\n")
        self.write("src/core/bytes.cpp", '#include "spillway/core/bytes.hpp"\n')
        self.write("src/memory/CMakeLists.txt", "spillway_add_part(memory PUBLIC_DEPS spillway::core)\n")
        self.write("src/memory/slab.cpp", '#include "spillway/memory/slab.hpp"\n#include "tree.hpp"\n')
        self.write("src/memory/tree.hpp", "#pragma once\n")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def assert_one_finding(self, location: str, *reasons: str) -> None:
        findings = check_layers.check_tree(self.root)
        self.assertEqual(len(findings), 1, findings)
        self.assertTrue(findings[0].startswith(location + ": "), findings[0])
        for reason in reasons:
            self.assertIn(reason, findings[0])

    def test_a_clean_tree_has_no_findings(self) -> None:
        self.assertEqual(check_layers.check_tree(self.root), [])

    def test_a_lower_part_that_includes_a_higher_one_is_found(self) -> None:
        self.write("src/core/bytes.cpp", '// text\n\n#include "spillway/memory/slab.hpp"\n')
        findings = check_layers.check_tree(self.root)
        self.assertIn(
            "src/core/bytes.cpp:3: includes spillway/memory/slab.hpp: core must not use memory (allowed: core)", findings
        )

    def test_an_include_in_angle_brackets_is_found_too(self) -> None:
        self.write("include/spillway/core/bytes.hpp", "#  include <spillway/memory/slab.hpp>\n")
        self.assertTrue(check_layers.check_tree(self.root)[0].startswith("include/spillway/core/bytes.hpp:1: "))

    def test_an_internal_header_of_a_higher_part_is_found(self) -> None:
        for name in ("memory/tree.hpp", "../memory/tree.hpp"):
            self.write("src/core/bytes.cpp", f'#include "{name}"\n')
            self.assertIn("core must not use memory", check_layers.check_tree(self.root)[0])

    def test_torch_and_cuda_headers_are_closed_to_the_lower_parts(self) -> None:
        for name, library in {
            "torch/torch.h": "torch",
            "ATen/ATen.h": "torch",
            "c10/core/Device.h": "torch",
            "cuda_runtime_api.h": "cuda",
            "cuda.h": "cuda",
            "nccl.h": "nccl",
        }.items():
            with self.subTest(name):
                self.write("src/memory/slab.cpp", f"#include <{name}>\n")
                self.assert_one_finding("src/memory/slab.cpp:1", f"memory must not use {library}")

    def test_torch_is_closed_to_the_cuda_part_and_cuda_is_open(self) -> None:
        self.write("src/cuda/CMakeLists.txt", "spillway_add_part(cuda PRIVATE_DEPS spillway::core spillway::cudart)\n")
        self.write("src/cuda/device.cpp", "#include <cuda_runtime_api.h>\n#include <c10/cuda/CUDAStream.h>\n")
        self.assert_one_finding("src/cuda/device.cpp:2", "cuda must not use torch", "only torch, parallel, models may")

    def test_a_link_to_a_higher_part_is_found(self) -> None:
        self.write("src/core/CMakeLists.txt", "spillway_add_part(core\n  PUBLIC_DEPS spillway::memory)\n")
        self.assert_one_finding("src/core/CMakeLists.txt:2", "links spillway::memory: core must not use memory")

    def test_a_link_to_a_closed_library_is_found(self) -> None:
        self.write("src/memory/CMakeLists.txt", "spillway_add_part(memory PUBLIC_DEPS spillway::core spillway::cudart)\n")
        self.assert_one_finding("src/memory/CMakeLists.txt:1", "links spillway::cudart: memory must not use cuda")

    def test_a_part_that_is_included_but_not_linked_is_found(self) -> None:
        self.write("src/memory/CMakeLists.txt", "spillway_add_part(memory)  # not spillway::core\n")
        self.assert_one_finding("src/memory/CMakeLists.txt:1", "does not link spillway::core")

    def test_a_folder_that_is_no_part_is_found(self) -> None:
        self.write("src/misc/misc.cpp", "\n")
        self.assert_one_finding("misc", "not in the table")

    def test_a_part_without_its_cmake_file_is_found(self) -> None:
        self.write("src/trace/trace.cpp", "\n")
        self.assert_one_finding("src/trace", "has no CMakeLists.txt")

    def test_the_table_has_no_cycles_and_closes_torch_to_the_parts_below(self) -> None:
        for part in check_layers.ALLOWED:
            self.assertIn(part, check_layers.reachable(part))
        for part in ("core", "memory", "transfer", "plan", "pipeline", "trace"):
            self.assertFalse({"torch", "cuda"} & set(check_layers.ALLOWED[part].libraries.split()))
            self.assertFalse({"torch", "cuda", "parallel", "models"} & check_layers.reachable(part))


if __name__ == "__main__":
    unittest.main()
