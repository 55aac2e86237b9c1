#!/usr/bin/env python3
"""The program `spillway` from outside: help, errors, exit codes, and doctor's report without a GPU."""

import json
import unittest

from program import run

CHECKS = [
    "gpu",
    "driver",
    "torch",
    "host_memory",
    "lock_limit",
    "huge_pages",
    "numa",
    "link_out",
    "link_back",
    "link_both",
    "pinning",
]
OLD_CHECKS = ["backing"]  # old name


class Help(unittest.TestCase):
    def test_names_the_commands_examples_and_further_reading(self):
        result = run("spillway", "--help")
        self.assertEqual(result.returncode, 0)
        for text in ("activations", "doctor", "Examples:", "spillway doctor --json", "docs/architecture.md"):
            self.assertIn(text, result.stdout)

    def test_is_printed_when_no_command_is_given(self):
        result = run("spillway")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Usage:", result.stdout)

    def test_of_a_command_names_its_options_with_their_defaults(self):
        result = run("spillway", "doctor", "--help")
        self.assertEqual(result.returncode, 0)
        for text in ("--json", "--device", "--size", "--quick", "256 MiB", "Examples:"):
            self.assertIn(text, result.stdout)

    def test_version_is_one_line(self):
        result = run("spillway", "--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^spillway \d+\.\d+\.\d+\n$")


class WrongCommandLine(unittest.TestCase):
    def expect(self, arguments, *texts):
        result = run("spillway", *arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def test_an_unknown_command_gives_the_nearest_one(self):
        self.expect(["doctr"], 'unknown command "doctr"', 'did you mean "doctor"?', "spillway --help")

    def test_a_command_far_from_all_gives_the_list(self):
        self.expect(["xyzzyplugh"], "there are: doctor")

    def test_an_unknown_option_gives_the_nearest_one(self):
        self.expect(["doctor", "--josn"], 'did you mean "--json"?', "spillway doctor --help")

    def test_a_word_too_many_is_refused(self):
        self.expect(["doctor", "now"], 'unexpected "now"')

    def test_a_wrong_size_says_what_is_accepted(self):
        self.expect(["doctor", "--size", "12Gob"], '"12Gob"', "character 3", '"8 GiB"')

    def test_a_size_too_small_to_measure_says_what_to_give(self):
        self.expect(["doctor", "--size", "0"], "at least 1 MiB")

    def test_an_option_without_its_value_is_refused(self):
        self.expect(["doctor", "--size"], "--size")

    def test_a_wrong_device_says_what_is_accepted(self):
        self.expect(["doctor", "--device", "gpu"], '"gpu"', '"host"', '"cuda:1"')


class Doctor(unittest.TestCase):
    def test_a_device_that_does_not_exist_is_an_error_that_says_what_to_do(self):
        for device in ("99", "cuda:99"):
            result = run("spillway", "doctor", "--device", device, gpu=True)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stdout, "")
            self.assertTrue(result.stderr.startswith("error: [cuda] device 99 wanted, but"), result.stderr)
            self.assertRegex(result.stderr, "use the host device|choose one of these")

    def test_json_has_every_check_with_its_sentences_and_values(self):
        result = run("spillway", "doctor", "--quick", "--size", "2 MiB", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["schema"], "spillway.doctor/2")
        self.assertEqual(report["device"], "host")
        self.assertEqual(list(report["checks"]), CHECKS + OLD_CHECKS)
        for check in report["checks"].values():
            self.assertLessEqual({"label", "state", "found", "works", "change", "values"}, check.keys())
            self.assertIn(check["state"], ("ok", "note", "problem"))
            self.assertTrue(check["found"])
        for name in ("link_out", "link_back", "link_both"):
            values = report["checks"][name]["values"]
            for side in ("engine_gb_per_s", "direct_gb_per_s"):
                self.assertGreater(values[side]["min"], 0)
                self.assertLessEqual(values[side]["min"], values[side]["median"])
                self.assertLessEqual(values[side]["median"], values[side]["max"])
        self.assertGreater(report["checks"]["host_memory"]["values"]["available_bytes"], 0)
        self.assertGreater(report["checks"]["pinning"]["values"]["seconds_per_gib"], 0)
        self.assertTrue(report["works"])
        torch = report["checks"]["torch"]["values"]
        if torch["built_in"]:
            self.assertRegex(torch["version"], r"^\d+\.\d+\.\d+")
            self.assertTrue(torch["computes"])
            self.assertFalse(torch["sees_cuda"])

    def test_json_has_what_schema_1_called_otherwise_under_its_old_name_too(self):
        result = run("spillway", "doctor", "--quick", "--size", "2 MiB", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        checks = report["checks"]
        self.assertEqual(checks["backing"], checks["pinning"])  # old name
        values = checks["pinning"]["values"]
        self.assertEqual(values["backed_bytes"], values["pinned_bytes"])  # old name
        for name in ("link_out", "link_back", "link_both"):
            values = checks[name]["values"]
            self.assertEqual(values["plain_gb_per_s"], values["direct_gb_per_s"])  # old name
        self.assertEqual(
            report["renamed"],
            {"backing": "pinning", "backed_bytes": "pinned_bytes", "plain_gb_per_s": "direct_gb_per_s"},  # old name
        )

    def test_text_without_a_gpu_says_so_and_what_its_speeds_mean(self):
        result = run("spillway", "doctor", "--quick", "--size", "2 MiB")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("device host", result.stdout)
        for text in ("link, to host", "pinning", "What works here", "What to change", "To use a GPU"):
            self.assertIn(text, result.stdout)
        self.assertIn("not of a link to a GPU", " ".join(result.stdout.split()))

    def test_a_check_that_cannot_be_made_says_so_and_the_others_go_on(self):
        # Too few addresses for the link test's memory, enough for everything else.
        result = run("spillway", "doctor", "--quick", "--json", "--size", "2 GiB", address_space=3_200_000_000)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(list(report["checks"]), CHECKS + OLD_CHECKS)
        for name in ("link_out", "link_back", "link_both"):
            self.assertEqual(report["checks"][name]["state"], "problem")
            self.assertIn("could not be found out: [", report["checks"][name]["found"])
        self.assertEqual(report["checks"]["host_memory"]["state"], "ok")
        self.assertEqual(sum("link, to host" in sentence for sentence in report["change"]), 1)


if __name__ == "__main__":
    unittest.main()
