#!/usr/bin/env python3
"""`spillway train` with buffers sharded over ranks: bits, memory, and what is refused."""

import json
import unittest

from ranks import RanksTest, parallel

STEPS = 4
WORDS = ["--layers", "4", "--hidden", "64", "--heads", "4", "--tokens", "128", "--steps", str(STEPS), "--dropout", "0.1",
         "--set", "model.kind=gpt", "--set", "model.ffn=128", "--set", "train.micro_batches=3", "--set", "train.micro_batch_size=2"]  # fmt: skip
SHARED = """
[[rule]]
action = "offload"
shard = true
"""


class ShardedRanks(RanksTest):
    def reports(self, out, ranks):
        return [json.loads((out / f"rank-{rank}" / "report.json").read_text(encoding="utf-8")) for rank in range(ranks)]

    def rules(self, text):
        file = self.folder / "rules.toml"
        file.write_text(text, encoding="utf-8")
        return ["--set", f"memory.rules={file}"]

    def test_recompute_from_parts_with_the_same_bits(self):
        words = [*WORDS, *parallel(tensor=2, pipeline=2)]
        whole = parallel(recompute_interval=1)
        wanted = self.digest_of_equal_bits(STEPS, 4, *words, *whole)
        recompute = [*whole, *parallel(recompute_partition="true")]
        peaks = {}
        for name, more in {"whole": [], "kept": recompute, "offloaded": [*recompute, *parallel(recompute_offload="true")]}.items():
            out = self.folder / (name if more else "figures")
            if more:
                self.assertEqual(self.digest(4, *words, *more, "--out", out), wanted, name)
            figures = json.loads((out / "rank-0" / "train.json").read_text(encoding="utf-8"))
            peaks[name] = figures["ranks"][0]["step_peak"]
            for report in self.reports(out, 4):
                self.assertEqual(report["fallbacks"], {}, name)
                if name == "whole":
                    continue
                shard = report["shard"]
                self.assertEqual((shard["ranks"], shard["mismatched"]), (2, []))
                # Layers of three micro-batches: the second stage's first input comes from the first stage.
                self.assertGreaterEqual(shard["buffers"], 3)
                self.assertEqual(shard["gathers"], shard["buffers"])
                self.assertEqual(shard["part_bytes"] * 2, shard["bytes"])
            if name != "whole":
                self.assertGreater(figures["ranks"][0]["sharded"], 0)
        self.assertLess(peaks["kept"], peaks["whole"])
        self.assertLessEqual(peaks["offloaded"], peaks["kept"])

    def test_share_whatever_rules_say_and_is_equal(self):
        words = [*WORDS, *parallel(tensor=2, data=2)]
        self.equal_bits(STEPS, 4, *words, *self.rules(SHARED))
        out = self.folder / "figures"
        for report in self.reports(out, 4):
            self.assertGreater(report["shard"]["buffers"], 0)
            self.assertGreater(report["shard"]["gathers"], 0)
            # A rank's own heads and columns are its own.
            self.assertIn("it is not equal on all ranks of the shard group", "\n".join(report["shard"]["mismatched"]))
        text = (out / "rank-0" / "report.txt").read_text(encoding="utf-8")
        self.assertIn("offload, sharded", text)
        self.assertIn("gathered", text)

    def test_plan_together_within_a_budget(self):
        words = [*WORDS, *parallel(tensor=2, pipeline=2)]
        self.equal_bits(STEPS, 4, *words, *self.rules("[limits]\nshard = true\n"), "--budget", "60%")
        for report in self.reports(self.folder / "figures", 4):
            self.assertEqual(report["shard"]["ranks"], 2)
            self.assertEqual(report["shard"]["gathers"], report["shard"]["buffers"])

    def test_refuse_parts_of_sequences(self):
        result = self.train(2, *WORDS, *parallel(tensor=2, sequence_parallel="true", recompute_interval=1, recompute_partition="true"))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("the input of a layer is not equal on the ranks", result.stderr)


if __name__ == "__main__":
    unittest.main()
