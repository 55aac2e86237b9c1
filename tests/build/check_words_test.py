"""Tests of scripts/check_words.py: old words are found in text and in identifiers, others are not."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
sys.dont_write_bytecode = True
from check_words import findings_in  # noqa: E402


class WordsTest(unittest.TestCase):
    def found(self, text: str) -> list[str]:
        return [words for _, words, _ in findings_in(text)]

    def test_words_of_a_text_are_found_with_their_line(self) -> None:
        text = "one line\nwe reckon R anew\n"
        self.assertEqual([(line, words) for line, words, _ in findings_in(text)], [(2, "reckon"), (2, "anew")])

    def test_identifiers_are_taken_apart(self) -> None:
        for name in ("let_go", "kLetGo", "find_let_go()", "letGo"):
            self.assertEqual(self.found(name), ["let go"], name)

    def test_longer_words_are_not_found(self) -> None:
        for text in ("planned", "improve", "amend", "asides", "foreseeable", "recording a recorded step", "plaintiff"):
            self.assertEqual(self.found(text), [], text)

    def test_passes_in_flight_are_the_word_of_the_field(self) -> None:
        self.assertEqual(self.found("four passes in flight"), [])
        self.assertEqual(self.found("bytes in flight"), ["in flight"])

    def test_prefetching_is_not_running_ahead(self) -> None:
        self.assertEqual(self.found("reload_ahead()"), ["reload ahead"])
        self.assertEqual(self.found("gathers run ahead"), ["run ahead"])
        self.assertEqual(self.found("reload ahead of use"), [])

    def test_other_words_for_what_waits_or_lives_are_found(self) -> None:
        for text in ("struct Flight", "held_memory.hpp", "unaided", "LoneStage", "life.born", "the ledger", "Notebook"):
            self.assertEqual(len(self.found(text)), 1, text)
        for text in ("c10d's flight recorder", "passes in flight", "held until the step ends", "airborne", "alone"):
            self.assertEqual(self.found(text), [], text)

    def test_a_line_may_quote_an_old_name(self) -> None:
        self.assertEqual(self.found('{"let_go", "last_forward_use"},  // old name'), [])

    def test_each_finding_says_what_to_write_instead(self) -> None:
        self.assertTrue(all(instead for _, _, instead in findings_in("remade, told, a record, proof")))


if __name__ == "__main__":
    unittest.main()
