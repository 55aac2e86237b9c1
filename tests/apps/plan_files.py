"""Files for tests of `spillway plan` and its neighbours: profiles made by hand, and a folder to put them into."""

import json
import tempfile
import unittest
from pathlib import Path

from program import run

MIB = 1 << 20


def save(scope, saver):
    return {"saver": saver, "scope": scope}


def buffer(number, layer, scope, saver, producer, call, size):
    """One buffer of a profile, in the schema of docs/profile-and-plan.md."""
    return {
        "id": number,
        "size": size,
        "position": {"scope": scope, "saver": saver, "ordinal": 0},
        "layer": layer,
        "producer": {"name": producer, "scope": scope, "layer": layer, "call": call},
        "saves": [save(scope, saver)],
        "fixed": "none",
        "first_unpack": -1,
        "last_unpack": -1,
        "value": number,
        "last_forward_use": -1,
        "recipe": {"usable": True, "reason": ""},
    }


def profile(layers):
    """Two buffers a layer: what attention made, and what the activation function saved."""
    operators, values, buffers, sites = [], [], [], []
    for layer in range(layers):
        for scope, saver, producer in (
            (f"layers.{layer}.attention.core", "aten::_scaled_dot_product_flash_attention", "aten::mm"),
            (f"layers.{layer}.mlp.act", "aten::mul", "aten::silu"),
        ):
            number = len(buffers)
            operators.append(
                {
                    "name": producer,
                    "scope": scope,
                    "layer": layer,
                    "device_ns": 1000,
                    "workspace": 0,
                    "reads": [number - 1] if number else [],
                    "makes": [number],
                    "no_replay": "",
                    "saves": number,
                    "ordinal": 0,
                }
            )
            values.append({"size": (number + 1) * MIB, "call": number, "buffer": number, "persistent": False, "overwritten": False})
            buffers.append(buffer(number, layer, scope, saver, producer, number, (number + 1) * MIB))
            sites.append({"buffer": number, "dtype": "bfloat16", "sizes": [2 * MIB], "strides": [1], "offset": 0})
    chunk = {
        "chunk": 0,
        "first_layer": 0,
        "layers": layers,
        "forward_ns": 10_000_000,
        "backward_ns": 20_000_000,
        "theoretical_peak": 0,
        "measured_peak": 0,
        "operators": operators,
        "values": values,
        "calls_before_first_save": 1,
        "buffers": buffers,
        "sites": sites,
        "unpack_order": list(reversed(range(len(buffers)))),
        "timeline": {"kinds": [], "kind": [], "index": [], "compute_ns": [], "untracked_bytes": []},
    }
    return {
        "schema": "spillway.profile/5",
        "device": "a device",
        "link": {"out": 5e10, "back": 5e10, "out_with_back": 4e10, "back_with_out": 4e10},
        "layers": layers,
        "layer_scope": "layers",
        "pipeline_rank": 0,
        "fixed": 0,
        "granularity": 0,
        "chunks": [chunk],
    }


def timed(made, forward_ns=1_000_000, backward_ns=2_000_000):
    """The same with a timeline: a call takes 1 ms in forward and 2 ms in backward, and nothing lives beside buffers."""
    chunk = made["chunks"][0]
    count = len(chunk["buffers"])
    kinds = ["call begins", "call ends", "save", "backward begins", "unpack", "drop", "end"]
    moments = []
    for number in range(count):
        moments += [("call begins", number, 0), ("call ends", number, forward_ns), ("save", number, 0)]
    moments.append(("backward begins", -1, 0))
    for position, number in enumerate(reversed(range(count))):
        moments += [("unpack", position, 0), ("drop", number, backward_ns)]
    moments.append(("end", -1, 0))
    chunk["timeline"] = {
        "kinds": kinds,
        "kind": [kinds.index(kind) for kind, _, _ in moments],
        "index": [index for _, index, _ in moments],
        "compute_ns": [ns for _, _, ns in moments],
        "untracked_bytes": [0] * len(moments),
    }
    for number, each in enumerate(chunk["buffers"]):
        position = count - 1 - number
        each.update(first_unpack=position, last_unpack=position)
        each["last_forward_use"] = 3 * number + 4 if number + 1 < count else 3 * count
        chunk["operators"][number]["device_ns"] = forward_ns
    return made


class OnFiles(unittest.TestCase):
    """A test with a folder of its own, and files that the tests of its class only read."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.shared = Path(folder.name)
        cls.profile = cls.write_shared("p.json", json.dumps(profile(4)))
        cls.rules = cls.write_shared("r.toml", '[[rule]]\nscope = "*.attention"\nlayers = "0..2"\naction = "offload"\n')

    @classmethod
    def write_shared(cls, name, text):
        path = cls.shared / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    @classmethod
    def plan_shared(cls, name, rules):
        """The file of the plan that `rules` make of the profile."""
        path = str(cls.shared / name)
        run("spillway", "plan", "--profile", cls.profile, "--rules", rules, "--out", path).check_returncode()
        return path

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def ok(self, *arguments):
        result = run("spillway", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def refused(self, code, *arguments):
        result = run("spillway", *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        return result.stderr
