#!/usr/bin/env python3
"""`spillway train` with ranks that share each matrix: bits, checkpoints of whole tensors, and what cannot be."""

import json
import unittest

from program import some
from ranks import RanksTest, parallel

SMALL = ["--layers", "2", "--hidden", "64", "--heads", "4", "--tokens", "64", "--steps", "3", "--set", "model.ffn=128"]
RECOMPUTE = """
[[rule]]
layers = "0..1"
group_inputs = 1
action = "keep"

[[rule]]
layers = "0..1"
action = "recompute"
"""


class TensorRanks(RanksTest):
    def rules(self, text):
        file = self.folder / "rules.toml"
        file.write_text(text, encoding="utf-8")
        return ["--set", f"memory.rules={file}"]

    def losses(self, folder):
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def test_have_equal_bits_with_data_and_pipeline_under_autocast(self):
        words = [*SMALL, "--set", "model.kind=gpt", "--set", "model.tied=true", "--dropout", "0.1",
                 "--set", "train.precision=fp16", "--set", "train.micro_batches=2",
                 *parallel(data=2, tensor=2, pipeline=2, sequence_parallel="true")]  # fmt: skip
        wanted = self.digest(8, *words, "--baseline")
        for rules in some([RECOMPUTE], 0):
            self.assertEqual(self.digest(8, *words, *self.rules(rules)), wanted)
        out = self.folder / "run"
        self.assertEqual(self.digest(8, *words, "--budget", "80%", "--out", out), wanted)
        ranks = json.loads((out / "rank-7" / "train.json").read_text(encoding="utf-8"))["ranks"]
        self.assertEqual([each["tensor"] for each in ranks], [0, 1] * 4)
        self.assertEqual([each["stage"] for each in ranks], [0] * 4 + [1] * 4)

    def test_learn_what_one_rank_learns_and_go_on_under_any_layout(self):
        constant = ["--set", "optimizer.schedule=constant", "--set", "train.steps=4"]
        one = self.folder / "one"
        wanted = self.ok(1, *SMALL, *constant, "--baseline", "--out", one)
        for sequence in some(["true", "false"], 1):
            saved = ["--set", f"train.checkpoint={self.folder / sequence}", "--set", "train.resume=latest"]
            layout = parallel(tensor=2, sequence_parallel=sequence)
            out = self.folder / ("out-" + sequence)
            # The parts of a whole, written, and read again by one rank that has the whole.
            self.ok(2, *SMALL, *constant, *layout, *saved, "--set", "train.steps=2", "--out", out)
            self.ok(1, *SMALL, *constant, *saved, "--set", "train.steps=3", "--out", out)
            self.ok(2, *SMALL, *constant, *layout, *saved, "--out", out)
            # Sums over ranks are made in another order, so the numbers are alike and not equal.
            for mine, theirs in zip(self.losses(out), self.losses(one), strict=True):
                self.assertAlmostEqual(mine, theirs, places=4)
            whole = {
                name: entry["shape"]
                for file in sorted((self.folder / sequence / "step-000002").glob("weights-*.safetensors"))
                for name, entry in header_of(file).items()
            }
            self.assertEqual(whole["layers.0.attention.qkv"], [192, 64])
            self.assertEqual(whole["layers.0.mlp.fc2"], [64, 128])
        self.assertIn("parameters", wanted)

    def test_repeat_collectives_in_one_order_or_not_at_all(self):
        words = [*SMALL, "--dropout", "0.1", *parallel(tensor=2, sequence_parallel="true")]
        wanted = self.digest(2, *words, "--baseline")
        rules = self.rules("[limits]\nrecompute_collectives = true\n" + RECOMPUTE)
        self.assertEqual(self.digest(2, *words, *rules), wanted)
        result = self.train(2, *words, *rules, "--budget", "80%")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("they would repeat collectives in different orders", result.stderr)


def header_of(file):
    """The tensors that a safetensors file says it holds."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    header.pop("__metadata__", None)
    return header


if __name__ == "__main__":
    unittest.main()
