"""Tests of bench/layers/compare_traces.py, on synthetic traces with known results."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "bench/layers"))
sys.dont_write_bytecode = True
import compare_traces  # noqa: E402

COMPUTE = 7
COPIES = 21
OUT = "Memcpy DtoH (Device -> Pinned)"


class MadeUpTrace:
    """Forward begins at 100 us, backward at 1000 us; each piece of work is launched where it is said to be."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.event("user_annotation", "forward", 100, 850)
        self.event("user_annotation", "backward", 1000, 900)

    def event(self, category: str, name: str, begin: float, time: float, **arguments: Any) -> None:
        self.events.append({"ph": "X", "cat": category, "name": name, "ts": begin, "dur": time, "args": arguments})

    def work(
        self, name: str, launched: float, begin: float, end: float, stream: int = COMPUTE, bytes: int | None = None
    ) -> None:
        number = len(self.events)
        self.event("cpu_op", f"aten::{name}", launched, 2, **{"External id": number})
        self.event("cuda_runtime", "cudaLaunchKernel", launched, 2, correlation=number)
        arguments = {"External id": number, "correlation": number, "stream": stream}
        if bytes is None:
            self.event("kernel", f"void at::native::{name}<4>(int, float*)", begin, end - begin, **arguments)
        else:
            self.event("gpu_memcpy", OUT, begin, end - begin, bytes=bytes, **arguments)

    def save(self, path: Path) -> None:
        text = json.dumps({"traceEvents": [*self.events, {"ph": "M", "name": "process_name"}]})
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text, encoding="utf-8")


class CompareTracesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.without = MadeUpTrace()
        self.without.work("zero", 50, 60, 90)
        self.without.work("mm", 110, 200, 300)
        self.without.work("silu", 120, 300, 350)
        self.without.work("mm", 1010, 1100, 1300)
        self.with_ = MadeUpTrace()
        self.with_.work("mm", 110, 200, 300)
        self.with_.work("copy", 130, 250, 450, stream=COPIES, bytes=2**29)
        self.with_.work("silu", 120, 310, 360)
        self.with_.work("silu", 1005, 1100, 1150)
        self.with_.work("mm", 1200, 1250, 1450)

    def read(self, trace: MadeUpTrace, name: str = "trace.json") -> compare_traces.Trace:
        trace.save(self.folder / name)
        return compare_traces.read_trace(self.folder / name)

    def lines(self, text: str) -> list[list[str]]:
        return [line.split() for line in text.splitlines()]

    def test_work_belongs_to_the_part_that_launched_it_and_earlier_work_to_none(self) -> None:
        self.with_.work("late", 900, 1200, 1210)
        self.assertEqual([one.part for one in self.read(self.without).work], ["forward", "forward", "backward"])
        late = [one.part for one in self.read(self.with_).work if "late" in one.name]
        self.assertEqual(late, ["forward"])

    def test_work_without_a_launch_in_the_trace_belongs_to_the_part_in_which_it_began(self) -> None:
        self.without.event("kernel", "graph", 1500, 10, stream=COMPUTE)
        graph = self.read(self.without).work[-1]
        self.assertEqual((graph.name, graph.part, graph.operator), ("graph", "backward", "(none)"))

    def test_gaps_are_distinguished_by_whether_the_host_was_late(self) -> None:
        found = compare_traces.gaps(self.read(self.with_))
        self.assertEqual([(gap.time, gap.late) for gap in found], [(10, False), (740, True), (100, True)])

    def test_work_inside_other_work_of_the_stream_makes_no_gap(self) -> None:
        self.without.work("long", 125, 320, 1100)
        found = compare_traces.gaps(self.read(self.without))
        self.assertEqual(found, [])

    def test_the_tables_of_kernels_count_and_subtract(self) -> None:
        without, with_ = self.read(self.without), self.read(self.with_, "with.json")
        text = compare_traces.times_table("operators", without, with_, lambda work: (work.part, work.operator), 30)
        self.assertEqual(
            self.lines(text)[1:],
            [
                ["aten::silu", "backward", "0", "1", "50.0", "0.000", "0.050", "+0.050"],
                ["aten::mm", "backward", "1", "1", "200.0", "200.0", "0.200", "0.200", "+0.000"],
                ["aten::mm", "forward", "1", "1", "100.0", "100.0", "0.100", "0.100", "+0.000"],
                ["aten::silu", "forward", "1", "1", "50.0", "50.0", "0.050", "0.050", "+0.000"],
                ["all", "forward", "2", "2", "75.0", "75.0", "0.150", "0.150", "+0.000"],
                ["all", "backward", "1", "2", "200.0", "125.0", "0.200", "0.250", "+0.050"],
            ],
        )

    def test_what_is_cut_from_a_table_is_summed_up(self) -> None:
        without, with_ = self.read(self.without), self.read(self.with_, "with.json")
        text = compare_traces.times_table("kernels", without, with_, lambda work: (work.part, work.name), 1)
        self.assertIn(["(3", "others)", "3", "3", "116.7", "116.7", "0.350", "0.350", "+0.000"], self.lines(text))

    def test_busy_and_idle_times_are_those_of_the_compute_stream(self) -> None:
        text = compare_traces.stream_table(self.read(self.without), self.read(self.with_, "with.json"))
        lines = {" ".join(line[:2]): line[2:] for line in self.lines(text)[1:]}
        self.assertEqual(lines["forward without"], ["7", "0.150", "0.150", "0.150", "0.000", "0", "0.000", "0"])
        self.assertEqual(lines["forward with"], ["7", "0.160", "0.150", "0.150", "0.010", "1", "0.000", "0"])
        self.assertEqual(lines["backward with"], ["7", "0.350", "0.250", "0.250", "0.840", "2", "0.840", "2"])

    def test_copies_are_summed_by_direction_with_what_runs_beside_them(self) -> None:
        text = compare_traces.copies_table(self.read(self.without), self.read(self.with_, "with.json"))
        self.assertEqual(self.lines(text)[1:], [[*OUT.split(), "with", "1", "0.500", "0.200", "0.100"]])

    def test_the_largest_gaps_come_first_with_the_kernels_around_them(self) -> None:
        text = compare_traces.gaps_table("with", self.read(self.with_), 2)
        self.assertEqual(
            self.lines(text)[1:],
            [
                ["with", "740.0", "late", "backward", "silu<4>", "silu<4>"],
                ["with", "100.0", "late", "backward", "silu<4>", "mm<4>"],
            ],
        )

    def test_long_names_lose_their_middle_and_keep_what_tells_them_apart(self) -> None:
        ending = ", std::array<char*, 3ul> >(int, std::array<char*, 3ul>)"
        product = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, "
        product += "c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >" + ending
        silu = "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel("
        silu += "at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(c10::BFloat16)#1}" + ending
        for name, kept in ((product, "MulFunctor<float> >>"), (silu, "<4, silu_kernel>")):
            short = compare_traces.short_name(name)
            self.assertLessEqual(len(short), 60)
            self.assertTrue(short.startswith("vectorized_elementwise_kern"), short)
            self.assertTrue(short.endswith(kept), short)

    def test_the_program_prints_all_tables_of_text_and_packed_files(self) -> None:
        self.without.save(self.folder / "without.json.gz")
        self.with_.save(self.folder / "with.json")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = compare_traces.main([str(self.folder / "without.json.gz"), str(self.folder / "with.json")])
        self.assertEqual(code, 0)
        for title in ("compute stream", "copies", "operators", "kernels", "largest gaps"):
            self.assertIn("\n" + title, "\n" + printed.getvalue())

    def sums(self, without: MadeUpTrace, with_: MadeUpTrace) -> tuple[int, str]:
        """The exit code, and what was printed."""
        without.save(self.folder / "without.json")
        with_.save(self.folder / "with.json")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = compare_traces.main([str(self.folder / f"{side}.json") for side in ("without", "with")] + ["--json"])
        return code, printed.getvalue()

    def test_json_has_sums_of_both_parts_and_traces(self) -> None:
        code, text = self.sums(self.without, self.with_)
        self.assertEqual(code, 0, text)
        found = json.loads(text)
        self.assertEqual((found["schema"], found["device_work"]), ("spillway.traces/1", True))
        self.assertEqual(found["without"]["forward"], {
            "host_ms": 0.85, "operators": 2, "kernels": 2, "kernel_ms": 0.15, "copies": 0, "copied_bytes": 0})  # fmt: skip
        self.assertEqual({side: found[side]["backward"]["operators"] for side in ("without", "with")}, {"without": 1, "with": 2})
        copies = [found["with"][part][key] for key in ("copies", "copied_bytes") for part in ("forward", "backward")]
        self.assertEqual(sorted(copies), [0, 0, 1, 1 << 29])

    def test_json_says_that_there_was_no_work_on_a_gpu(self) -> None:
        empty = MadeUpTrace()
        empty.event("cpu_op", "aten::mm", 200, 50)
        code, text = self.sums(empty, empty)
        self.assertEqual(code, 0, text)
        found = json.loads(text)
        self.assertIs(found["device_work"], False)
        self.assertEqual([found["with"][part]["operators"] for part in ("forward", "backward")], [1, 0])
        # Of one with a GPU and one without there is nothing to compare.
        for pair, name in (((self.without, empty), "with.json"), ((empty, self.with_), "without.json")):
            code, text = self.sums(*pair)
            self.assertEqual(code, 1)
            self.assertIn(f"/{name}: no kernels in forward and backward", text)

    def test_a_trace_that_cannot_be_compared_is_refused_with_its_reason(self) -> None:
        empty = MadeUpTrace()
        unmarked = MadeUpTrace()
        del unmarked.events[1]
        for trace, reason in ((empty, "no kernels in forward and backward"), (unmarked, "no annotation backward")):
            with self.subTest(reason):
                trace.save(self.folder / "trace.json")
                printed = io.StringIO()
                with contextlib.redirect_stderr(printed):
                    code = compare_traces.main([str(self.folder / "trace.json")] * 2)
                self.assertEqual(code, 1)
                self.assertIn(f"trace.json: {reason}", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
