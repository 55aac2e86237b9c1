#!/usr/bin/env python3
"""`spillway trace` on files, as a user runs it."""

import json
import unittest

from plan_cli_test import MIB, OnFiles, profile
from program import cells, run


def with_timeline(document):
    """Each call takes a millisecond and saves what it makes; backward takes two for each."""
    chunk = document["chunks"][0]
    moments = []
    for call in range(len(chunk["operators"])):
        moments += [("call begins", call, 0), ("save", call, 1_000_000), ("call ends", call, 0)]
        chunk["buffers"][call]["last_forward_use"] = len(moments) - 1
    moments.append(("backward begins", -1, 0))
    for position, buffer in enumerate(chunk["unpack_order"]):
        chunk["buffers"][buffer]["first_unpack"] = chunk["buffers"][buffer]["last_unpack"] = position
        moments += [("unpack", position, 0), ("drop", buffer, 2_000_000)]
    moments.append(("end", -1, 0))
    kinds = list(dict.fromkeys(kind for kind, _, _ in moments))
    chunk["timeline"] = {
        "kinds": kinds,
        "kind": [kinds.index(kind) for kind, _, _ in moments],
        "index": [index for _, index, _ in moments],
        "compute_ns": [ns for _, _, ns in moments],
        "untracked_bytes": [MIB for _ in moments],
    }
    return document


class Trace(OnFiles):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.profile = cls.write_shared("p.json", json.dumps(with_timeline(profile(4))))
        cls.rules = cls.write_shared("r.toml", '[limits]\noffload_window = "2 MiB"\n[[rule]]\naction = "offload"\n')
        cls.plan = cls.plan_shared("plan.json", cls.rules)

    def setUp(self):
        super().setUp()
        self.out = self.folder / "trace.json"

    def trace(self, *arguments):
        text = self.ok("trace", "--profile", self.profile, "--plan", self.plan, "-o", str(self.out), *arguments)
        return text, json.loads(self.out.read_text(encoding="utf-8"))["traceEvents"]

    def test_shows_streams_as_threads_and_memory_as_a_counter(self):
        text, events = self.trace()
        self.assertIn(f"{self.out} is written", text)
        names = {(each["name"], each["args"].get("name")) for each in events if each["ph"] == "M"}
        self.assertIn(("process_name", "predicted"), names)
        for stream in ("passes", "compute", "copy out", "copy back"):
            self.assertIn(("thread_name", stream), names)
        memory = [each["args"]["bytes"] for each in events if each["ph"] == "C"]
        self.assertGreater(max(memory), 8 * MIB)

    def test_shows_what_is_computed_and_copied_and_when(self):
        _, events = self.trace()
        spans = [each for each in events if each["ph"] == "X"]
        forward = [each for each in spans if each.get("cat") == "forward" and "aten::" in each["name"]]
        self.assertEqual(len(forward), 8)
        self.assertEqual(forward[0]["name"], "layers.0.attention.core aten::mm")
        self.assertEqual(forward[0]["dur"], 1000)
        backward = [each for each in spans if each.get("cat") == "backward" and each["name"].endswith("backward")]
        self.assertEqual(sum(each["dur"] for each in backward), 16000)
        out = [each for each in spans if each.get("cat") == "copy out"]
        back = [each for each in spans if each.get("cat") == "copy back"]
        self.assertEqual(len(out), len(back))
        self.assertEqual(out[0]["args"]["bytes"], "1.0 MiB")
        for lane in (out, back):
            for before, after in zip(lane, lane[1:]):
                self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 0.002)

    def test_says_what_the_step_takes(self):
        text, events = self.trace()
        said = {row[0]: row[1] for row in cells(text) if len(row) == 2}
        self.assertEqual(set(said), {"step", "of it", "device memory", "host memory", "copied"})
        # It ends with the last event, and its copies are those shown.
        end = max(each["ts"] + each["dur"] for each in events if each["ph"] == "X")
        self.assertAlmostEqual(float(said["step"].removesuffix(" ms")), end / 1000, delta=0.02)
        self.assertGreaterEqual(end, 24_000)
        out, back = (sum(float(each["args"]["bytes"].removesuffix(" MiB")) for each in events if each.get("cat") == f"copy {way}")
                     for way in ("out", "back"))  # fmt: skip
        self.assertEqual(said["copied"], f"{out:.1f} MiB out, {back:.1f} MiB back")

    def test_knows_micro_batches(self):
        _, events = self.trace("--micro-batches", "3")
        passes = [each["name"] for each in events if each["ph"] == "X" and each["name"].startswith("forward, ")]
        self.assertEqual(passes, [f"forward, chunk 0, micro-batch {number}" for number in range(3)])

    def test_refuses_a_profile_without_times_and_a_plan_of_another_model(self):
        bare = self.write("bare.json", json.dumps(profile(4)))
        text = self.refused(1, "trace", "--profile", bare, "--plan", self.plan, "-o", str(self.out))
        self.assertIn("[model] chunk 0 of the profile has no timeline", text)
        other = self.write("other.json", json.dumps(with_timeline(profile(5))))
        text = self.refused(1, "trace", "--profile", other, "--plan", self.plan, "-o", str(self.out))
        self.assertIn("the plan was made for another structure", text)
        self.assertFalse(self.out.exists())

    def test_refuses_lines_without_sense(self):
        for arguments, text in (
            (["--plan", self.plan, "-o", "t.json"], "--profile is required"),
            (["--profile", self.profile, "-o", "t.json"], "--plan is required"),
            (["--profile", self.profile, "--plan", self.plan], "--out is required"),
            (["--profile", self.profile, "--plan", self.plan, "-o", "t.json", "--micro-batches", "0"], "--micro-batches"),
        ):
            self.assertIn(text, self.refused(2, "trace", *arguments))

    def test_is_explained_by_its_help(self):
        result = run("spillway", "trace", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("ui.perfetto.dev", result.stdout)


del OnFiles  # Its own tests are not ours.

if __name__ == "__main__":
    unittest.main()
