#!/usr/bin/env python3
"""`spillway train` as several ranks under mpirun, as a user runs it: bits, restarts, and how it ends when something fails."""

import array
import os
import signal
import subprocess
import unittest
from pathlib import Path

from program import BIN, some
from ranks import ENVIRONMENT, RanksTest, command, json_of, parallel, steps_of, wait_until

SMALL = ["--layers", "4", "--hidden", "64", "--tokens", "128", "--steps", "4", "--dropout", "0.1"]


def children_of(pid):
    """The processes whose parent it is, in the order of their numbers."""
    children = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # "1234 (name) S parent ...": the name may have blanks and brackets.
            parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except OSError:
            continue  # It has ended.
        if parent == pid:
            children.append(int(folder.name))
    return sorted(children)


def is_running(pid):
    """A process that has ended may be listed until somebody asks for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Ranks(RanksTest):
    def test_give_the_same_digest_on_every_layout_of_stages(self):
        wanted = self.baseline(1, *SMALL)
        self.assertEqual(self.digest(1, *SMALL), wanted)
        self.assertEqual(self.digest(2, *SMALL, *parallel(pipeline=2)), wanted)
        self.assertEqual(self.digest(2, *SMALL, *parallel(pipeline=2, virtual=2), "--baseline"), wanted)
        self.assertEqual(self.digest(4, *SMALL, *parallel(pipeline=4), "--budget", "4MiB"), wanted)
        self.assertNotEqual(self.digest(1, *SMALL, "--seed", 1), wanted)

    def test_a_budget_has_room_for_gradients_that_come_and_go_at_the_end_of_a_pass(self):
        # That of the embedding is most of what the first stage has: more than all that it saves.
        words = ["--layers", "2", "--hidden", "256", "--tokens", "64", "--steps", "8", "--set", "train.micro_batches=4"]
        words += ["--set", "model.vocabulary=12576", "--budget", "97%"]
        for each in self.equal_bits(8, 2, *words, *parallel(pipeline=2)):
            self.assertLessEqual(each["with"]["step_peak"], each["predicted"]["budget"])

    def test_compare_bits_and_write_figures_of_each_rank(self):
        words = [*SMALL, "--set", "train.precision=bf16"]
        alone = self.equal_bits(4, 1, *words)[0]
        figures = self.equal_bits(4, 4, *words, *parallel(pipeline=2, data=2))
        for each in figures:
            # Each of the two copies of the model has all gradients.
            self.assertEqual(each["gradients_compared"], 2 * alone["gradients_compared"])
            ranks = each["ranks"]
            self.assertEqual([rank["rank"] for rank in ranks], [0, 1, 2, 3])
            self.assertEqual([rank["stage"] for rank in ranks], [0, 0, 1, 1])
            self.assertEqual([rank["layers"] for rank in ranks], ["embedding .. layers.1"] * 2 + ["layers.2 .. head"] * 2)
            self.assertTrue(all(rank["offloaded"] > 0 for rank in ranks))
        self.assertEqual([line["step"] for line in steps_of(self.folder / "figures")], [1, 2, 3, 4])

    def test_split_the_model_as_configured_with_the_same_bits(self):
        wanted = self.baseline(1, *SMALL)
        profile = self.folder / "p.json"
        result = subprocess.run(
            [str(BIN / "spillway"), "profile", "--layers", "4", "--hidden", "64", "--tokens", "512", "--out", str(profile)],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False)  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        ways = (("0,3,4", "embedding .. layers.2"), ("memory", "embedding .. layers."),
                ("layer:LlamaLayer", "embedding .. layers.1"), ("time", "embedding .. layers."))  # fmt: skip
        for segmentation, first in some(ways, 2):
            out = self.folder / "run"
            layout = parallel(pipeline=2, segmentation=segmentation, profile=profile)
            self.assertEqual(self.digest(2, *SMALL, *layout, "--out", out), wanted)
            self.assertTrue(json_of(out / "rank-0" / "train.json")["ranks"][0]["layers"].startswith(first), segmentation)

    def test_train_in_half_precision_with_the_same_bits(self):
        half = [*SMALL, "--set", "train.precision=fp16"]
        out = self.folder / "run"
        wanted = self.digest(1, *half, "--baseline", "--out", out)
        lines = steps_of(out)
        self.assertEqual(len(lines), 4)
        self.assertFalse(all(line["skipped"] for line in lines), "no step had finite gradients")
        self.assertEqual(self.digest(2, *half, *parallel(pipeline=2)), wanted)
        for layout in some([parallel(pipeline=2, data=2)], 0):
            self.equal_bits(4, 4, *half, *layout)

    def test_read_files_of_tokens(self):
        tokens = array.array("H", (i * i % 251 for i in range(6000)))
        headless, with_header = self.folder / "headless.bin", self.folder / "header.bin"
        headless.write_bytes(tokens.tobytes())
        with_header.write_bytes(array.array("i", [20240520, 1, len(tokens)] + [0] * 253).tobytes() + tokens.tobytes())
        data = [*SMALL, "--set", "data.path=" + str(headless)]
        wanted = self.digest(1, *data, "--baseline")
        self.assertNotEqual(self.baseline(1, *SMALL), wanted)
        self.assertEqual(self.digest(2, *data, *parallel(pipeline=2)), wanted)
        self.assertEqual(self.digest(1, *data, "--set", f"data.path={with_header}"), wanted)
        result = self.train(2, *data, *parallel(pipeline=2), "--vocabulary", 100)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("headless.bin", result.stderr)

    def test_go_on_under_another_split_with_the_same_bits(self):
        saved = ["--set", f"train.checkpoint={self.folder / 'saved'}", "--set", "train.resume=latest"]
        for model in some([[], ["--set", "model.kind=gpt", "--set", "model.tied=true"]], 1):
            layout = parallel(pipeline=2)
            # The cosine of a run is that of its steps: end it early by the number of steps, go on with all of them.
            constant = ["--set", "optimizer.schedule=constant"]
            wanted = self.digest(2, *SMALL, *model, *layout, *constant, "--set", "train.steps=6")
            self.ok(2, *SMALL, *model, *layout, *constant, *saved, "--set", "train.steps=3")
            other = parallel(pipeline=1) if not model else layout
            ranks = 1 if not model else 2
            self.assertEqual(self.digest(ranks, *SMALL, *model, *other, *constant, *saved, "--set", "train.steps=6"), wanted)
            for file in sorted((self.folder / "saved").rglob("*"), reverse=True):
                file.unlink() if file.is_file() else file.rmdir()

    def test_save_and_end_on_sigterm(self):
        saved = ["--set", f"train.checkpoint={self.folder / 'saved'}"]
        process = subprocess.Popen(
            command(1, *SMALL, *saved, "--set", "train.steps=100000", "--baseline"),
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        first = process.stderr.readline()  # However long it takes until it trains.
        self.assertIn("step 1/", first)
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("checkpoint: ", out)
        written = [each.parent.name for each in (self.folder / "saved").glob("step-*/index.json")]
        self.assertEqual(len(written), 1)
        step = int(written[0].removeprefix("step-"))
        self.assertIn(f"ended by signal 15 after step {step}; ", errors)
        self.assertIn(f"{written[0]} is written, train.resume=latest goes on", errors)

    def test_name_a_damaged_checkpoint_and_change_nothing(self):
        saved = ["--set", f"train.checkpoint={self.folder / 'saved'}"]
        self.ok(2, *SMALL, *parallel(pipeline=2), *saved)
        file = self.folder / "saved" / "step-000004" / "weights-00001.safetensors"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        result = self.train(2, *SMALL, *parallel(pipeline=2), *saved, "--set", "train.resume=latest", "--set", "train.steps=5")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("weights-00001.safetensors", result.stderr)
        self.assertFalse((self.folder / "saved" / "step-000005").exists())
        result = self.train(1, "--set", f"train.resume={self.folder / 'saved' / 'step-000004'}", *SMALL, "--set", "model.layers=5")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("model.layers: 4 then, 5 now", result.stderr)

    def test_do_the_arithmetic_where_ranks_do_not_divide(self):
        result = self.train(3, *SMALL, *parallel(pipeline=2))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("data 1 x pipeline 2 x tensor 1 x expert 1 = 2 ranks wanted, 3 are there", result.stderr)
        result = self.train(1, *SMALL, *parallel(pipeline=3, virtual=2))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("3 x 2 = 6 chunks, but 4 layers", result.stderr)

    def test_end_all_ranks_and_say_why_if_no_plan_fits_one_of_them(self):
        result = self.train(2, *SMALL, *parallel(pipeline=2), "--budget", "1kB")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(" of 2 ends the job: [plan] no plan fits", result.stderr)

    def test_end_if_one_of_them_is_killed(self):
        out = self.folder / "run"
        process = subprocess.Popen(
            command(2, *SMALL, *parallel(pipeline=2), "--set", "train.steps=100000", "--baseline", "--out", out),
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        self.addCleanup(process.kill)
        ranks = wait_until(lambda: len(found := children_of(process.pid)) == 2 and found)
        self.assertTrue(ranks, "the ranks did not start")
        # They train; each needs the other one for every step.
        self.assertTrue(wait_until(lambda: steps_of(out)), "no step has ended")
        os.kill(ranks[1], signal.SIGKILL)
        text, _ = process.communicate(timeout=120)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("exited on signal 9", text)
        self.assertTrue(wait_until(lambda: not any(map(is_running, ranks))), [pid for pid in ranks if is_running(pid)])


if __name__ == "__main__":
    unittest.main()
