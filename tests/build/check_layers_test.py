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
        self.assert_one_finding("src/cuda/device.cpp:2", "cuda must not use torch", "only torch, groups, comm,")

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

    def test_a_framework_part_may_use_the_engine(self) -> None:
        self.write("framework/schedule/CMakeLists.txt", "spillway_add_part(schedule PUBLIC_DEPS spillway::plan)\n")
        self.write("framework/include/spillway/schedule/schedule.hpp", '#include "spillway/core/bytes.hpp"\n')
        text = '#include "spillway/schedule/schedule.hpp"\n#include "schedule/order.hpp"\n'
        self.write("framework/schedule/order.cpp", text)
        self.write("framework/schedule/order.hpp", "#pragma once\n")
        self.assertEqual(check_layers.check_tree(self.root), [])

    def test_the_engine_must_not_use_the_framework(self) -> None:
        self.write("framework/groups/CMakeLists.txt", "spillway_add_part(groups PUBLIC_DEPS spillway::torch)\n")
        self.write("framework/groups/state.hpp", "#pragma once\n")
        self.write("framework/include/spillway/groups/group.hpp", "#pragma once\n")
        for name in ("groups/state.hpp", "../../framework/groups/state.hpp", "spillway/groups/group.hpp"):
            with self.subTest(name):
                self.write("src/memory/slab.cpp", f'#include "{name}"\n')
                findings = check_layers.check_tree(self.root)
                self.assertIn(f"src/memory/slab.cpp:1: includes {name}: memory must not use groups", findings[0])

    def test_a_link_of_the_engine_to_the_framework_is_found(self) -> None:
        self.write("src/memory/CMakeLists.txt", "spillway_add_part(memory PUBLIC_DEPS spillway::core spillway::pipeline)\n")
        self.assert_one_finding("src/memory/CMakeLists.txt:1", "memory must not use pipeline")

    def test_a_lower_framework_part_that_includes_a_higher_one_is_found(self) -> None:
        self.write("framework/groups/CMakeLists.txt", "spillway_add_part(groups PUBLIC_DEPS spillway::torch)\n")
        self.write("framework/groups/group.cpp", '\n#include "spillway/comm/world.hpp"\n')
        self.assertTrue(
            check_layers.check_tree(self.root)[0].startswith(
                "framework/groups/group.cpp:2: includes spillway/comm/world.hpp: groups must not use comm"
            )
        )

    def test_a_folder_of_the_framework_that_is_no_part_is_found(self) -> None:
        for folder in ("framework/parallel", "framework/memory", "src/models"):
            with self.subTest(folder):
                self.write(f"{folder}/misc.cpp", "\n")
                part = folder.split("/")[1]
                self.assert_one_finding(part, "not in the table")
                (self.root / folder / "misc.cpp").unlink()

    def plan_tree(self) -> None:
        self.write("src/plan/CMakeLists.txt", "spillway_add_part(plan PUBLIC_DEPS spillway::core)\n")
        self.write("src/plan/profile/profile.cpp", '#include "spillway/plan/profile.hpp"\n')
        text = '#include "spillway/plan/simulate.hpp"\n#include "plan/profile/model.hpp"\n'
        self.write("src/plan/simulate/simulate.cpp", text)
        self.write("src/plan/profile/model.hpp", "#pragma once\n")
        self.write("src/plan/solve/space.hpp", "#pragma once\n")
        self.write("src/plan/frontends/rules.cpp", '#include "spillway/plan/rules.hpp"\n')
        self.write("include/spillway/plan/profile.hpp", "#pragma once\n")
        self.write("include/spillway/plan/rules.hpp", '#pragma once\n#include "spillway/plan/profile.hpp"\n')
        self.write("include/spillway/plan/simulate.hpp", '#pragma once\n#include "spillway/plan/profile.hpp"\n')

    def test_rooms_may_include_lower_ones(self) -> None:
        self.plan_tree()
        self.assertEqual(check_layers.check_tree(self.root), [])

    def test_a_room_that_includes_a_higher_one_is_found(self) -> None:
        self.plan_tree()
        for name in ("plan/solve/space.hpp", "../solve/space.hpp"):
            with self.subTest(name):
                self.write("src/plan/simulate/link.cpp", f'#include <vector>\n#include "{name}"\n')
                self.assert_one_finding("src/plan/simulate/link.cpp:2", "plan/simulate must not use plan/solve")

    def test_rooms_beside_each_other_are_closed_to_each_other(self) -> None:
        self.plan_tree()
        self.write("src/plan/frontends/paddle.cpp", '#include "plan/solve/space.hpp"\n')
        self.assert_one_finding("src/plan/frontends/paddle.cpp:1", "plan/frontends must not use plan/solve")

    def test_a_public_header_belongs_to_the_room_of_its_source(self) -> None:
        self.plan_tree()
        self.write("src/plan/profile/profile.cpp", '#include "spillway/plan/simulate.hpp"\n')
        self.assert_one_finding("src/plan/profile/profile.cpp:1", "plan/profile must not use plan/simulate")
        self.plan_tree()
        self.write("include/spillway/plan/profile.hpp", '#include "spillway/plan/simulate.hpp"\n')
        self.assert_one_finding("include/spillway/plan/profile.hpp:1", "plan/profile must not use plan/simulate")

    def test_a_public_header_may_be_given_another_room(self) -> None:
        self.plan_tree()
        self.write("src/plan/policy/match.cpp", '#include "spillway/plan/rules.hpp"\n')
        self.assertEqual(check_layers.check_tree(self.root), [])

    def test_files_outside_of_rooms_are_found(self) -> None:
        self.plan_tree()
        self.write("src/plan/misc.cpp", "\n")
        self.assert_one_finding("src/plan/misc.cpp", "there is no room . of plan")
        (self.root / "src/plan/misc.cpp").unlink()
        self.write("src/plan/misc/misc.cpp", "\n")
        self.assert_one_finding("src/plan/misc/misc.cpp", "there is no room misc of plan")
        (self.root / "src/plan/misc/misc.cpp").unlink()
        self.write("include/spillway/plan/nobody.hpp", "\n")
        self.assert_one_finding("include/spillway/plan/nobody.hpp", "belongs to no room")

    def test_the_table_has_no_cycles_and_closes_torch_to_the_parts_below(self) -> None:
        for part in check_layers.ALLOWED:
            self.assertIn(part, check_layers.reachable(part))
        for part in ("core", "util", "memory", "transfer", "plan", "trace", "schedule"):
            self.assertFalse({"torch", "cuda"} & set(check_layers.ALLOWED[part].libraries.split()))
            self.assertFalse({"torch", "cuda", "groups", "models"} & check_layers.reachable(part))
        for part in check_layers.ENGINE:
            self.assertFalse(set(check_layers.FRAMEWORK) & check_layers.reachable(part), part)

    def test_the_rooms_have_no_cycles(self) -> None:
        for part, rooms in check_layers.ROOMS.items():
            self.assertIn(part, check_layers.ALLOWED)
            for room in rooms:
                for lower in check_layers.reachable_rooms(part, room) - {room}:
                    self.assertNotIn(room, check_layers.reachable_rooms(part, lower))


if __name__ == "__main__":
    unittest.main()
