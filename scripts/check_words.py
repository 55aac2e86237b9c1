#!/usr/bin/env python3
"""Fails when a source, a text or a message uses a word that the glossary replaces by another one.

usage: check_words.py [--list] [FILE...]

Looked at are all files of the repository that people write, or the given ones. Identifiers count too: `let_go` and
`kLetGo` are read as "let go". Each finding is one line: file:line: "the words": what to write instead. A line that must
quote an old word, such as the table of old names of an option, says `old name` in a comment. --list prints the words.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

from checked_files import check, name_of

SUFFIXES = {".cpp", ".hpp", ".h", ".cu", ".py", ".pyi", ".md", ".toml", ".sh", ".cmake", ".txt", ".json", ".in", ".map"}
# Written by other people, or by programs: kept results keep the words of the program that wrote them.
SKIPPED = re.compile(r"LICENSE|bench/results/(?!README).*|scripts/check_words\.py|tests/build/check_words_test\.py|.*/data/.*")
QUOTES = "old name"


class Word(NamedTuple):
    pattern: str  # of the line with its identifiers taken apart, in lower case
    instead: str


WORDS = [
    Word(r"reckon(s|ed|ing)?", "estimate, compute, count"),
    Word(r"anew", "again; replan, retry"),
    Word(r"mend(s|ed|ing)?", "fix"),
    Word(r"linger(s|ed|ing)?", "pending release"),
    Word(r"remade|remakes?|remaking", "recompute"),
    Word(r"(made|make|makes|making) (them |it )?again", "recompute"),
    Word(r"(so manyth|so-manyth)", "every N steps"),
    Word(r"programmes?", "MILP model"),
    Word(r"prove(s|d|n)?|proving|proofs?", "verify, verification"),
    Word(r"lasting", "persistent"),
    Word(r"let(s|ting)? go( of)?", "last forward use, release"),
    Word(r"(?<!passes )(?<!pass )(?<!micro-batches )(?<!micro batches )(?<!batches )in[ -]flight",
         "offload window, bytes under way; passes in flight may stay"),
    Word(r"most (leaving|ahead)|leaving bytes|bytes leaving", "pending release, prefetched"),
    Word(r"st(and|ands|anding|ood) aside|left alone|leaves? (it |them )?alone|aside", "fallback; untimed wait"),
    Word(r"what stays|other bytes", "persistent bytes, untracked bytes"),
    Word(r"held by (nobody|the caller|caller)", "caller-owned"),
    Word(r"foreseen?|foresees|told", "predicted; given"),
    Word(r"numbers in|renumber(ed|s)?", "match calls, remap"),
    Word(r"(made|make|makes|making) ready|back(ed|ing) (by )?(host |registered )?memory|locked (host )?memory|"
         r"memory (is|that is|was) locked|backing", "pinned host memory"),
    Word(r"br(ing|ings|ought|inging) (it |them |whole |a buffer |buffers )?(back|whole)", "reload, all-gather"),
    Word(r"wish(es|ed)?|leaning", "request; estimate"),
    Word(r"plain(?! text)", "baseline; ordinary"),
    Word(r"(a|the|fresh|last|first|second|new|this|that|one|each|its|every|no|another) record(?! of)(?!ing)(?!ed)",
         "profile, recording step"),
    Word(r"chang(e|es|ed) place", "move"),
    Word(r"(run|runs|ran|running) ahead|(reload|reloads|reloaded|gather|gathers) ahead(?! of)", "prefetch"),
    Word(r"may leave(?! one)|leave to owner", "may be offloaded; return to owner"),
    Word(r"held (memory|pulls)|offload held", "memory hold; anchor"),
    Word(r"flights?(?<!in flight)(?<!in-flight)(?! recorder)", "pending exchange, pending backward"),
    Word(r"values on their way", "intermediate values"),
    Word(r"unaided", "baseline"),
    Word(r"lone", "single"),
    Word(r"born", "allocated"),
    Word(r"ledgers?", "managed bytes"),
    Word(r"cutters?", "splitter"),
    Word(r"notebooks?", "recorder, recipe book"),
    Word(r"nap|k look", "poll interval"),
]
COMPILED = [(re.compile(rf"(?<![a-z]){'(?:' + word.pattern + ')'}(?![a-z])"), word) for word in WORDS]
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words_of(line: str) -> str:
    """The line in lower case with identifiers taken apart: `kLetGo` and `let_go` become "k let go" and "let go"."""
    return CAMEL.sub(" ", line).replace("_", " ").lower()


def findings_in(text: str) -> list[tuple[int, str, str]]:
    """Line, words found and what to write instead."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if QUOTES in line:
            continue
        normal = words_of(line)
        for pattern, word in COMPILED:
            found += [(number, match[0], word.instead) for match in pattern.finditer(normal)]
    return found


def is_checked(file: Path) -> bool:
    written = file.suffix in SUFFIXES or file.name in ("Makefile", "run")
    return written and not SKIPPED.fullmatch(name_of(file))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--list", action="store_true", help="print the words and what to write instead")
    given = parser.parse_args()
    if given.list:
        for word in WORDS:
            print(f"{word.pattern}\n    {word.instead}")
        return 0
    return check(
        "words",
        given.files,
        is_checked,
        lambda _, text: [(line, f'"{words}": {instead}') for line, words, instead in findings_in(text)],
    )


if __name__ == "__main__":
    sys.exit(main())
