from collections.abc import Callable, Sequence
from typing import final

@final
class CommandOption:
    name: str
    value: str
    words: list[str]
    keys: list[str]
    old_name: str
    help: str
    accepts: str

@final
class TrainOptions:
    def __init__(self, file: str, overrides: list[str]) -> None: ...
    def set(self, name: str, value: str) -> None: ...

@final
class Trainer:
    def __init__(self, options: TrainOptions) -> None: ...
    timeout: float
    def backend(self, ranks: int) -> str: ...
    def run_alone(self) -> int: ...
    def run_as_rank(
        self, rank: int, size: int, new_group: Callable[[Sequence[int]], str], abort: Callable[[str], None]
    ) -> int: ...

config_help: str
set_help: str
short_forms: str

def train_options() -> list[CommandOption]: ...
def warn_renamed(kind: str, old: str, name: str) -> None: ...
def config_text(file: str, overrides: list[str]) -> str: ...
