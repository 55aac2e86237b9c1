"""`python -m spillway`: the trainer, and what is installed here. `python -m spillway --help` says more."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from . import _build_info
from .errors import Error, PlanInfeasible
from .launch import has_trainer, require_trainer, train

if TYPE_CHECKING:
    from . import _trainer

USAGE_ERROR = 2
INFEASIBLE = 3

DESCRIPTION = """\
Spillway trains within a budget of device memory: it keeps, offloads or recomputes what autograd
saves, with the same bits. Without a command this prints the versions that a bug report needs.
"""

EXAMPLES = """\
examples:
  python -m spillway train                        a small model, in seconds on a CPU
  python -m spillway config > run.toml            all settings with what they mean; then
  python -m spillway train run.toml --set train.steps=500
  python -m spillway train --compare --budget 33%
                                                  without and within a third of the memory, bit for bit
  torchrun --nproc-per-node 4 -m spillway train run.toml --set parallel.pipeline=4
  torchrun --nproc-per-node 4 -m spillway train --set parallel.pipeline=2 --set parallel.data=2 --digest
                                                  one line that tells whether two runs are the same to the
                                                  bit, on whatever layout of stages
"""

TRAIN_NOTES = """\
Under torchrun every process is a rank; they communicate over NCCL where each has a GPU of its own, else over gloo. Rank 0
prints. Without rules, plan or budget all layers but the last are offloaded. SIGTERM and Ctrl-C save a checkpoint, if
there is a folder for it, and end the run. Exit code 1 if bits differ, 3 if no plan fits the budget. docs/train.md
describes the keys of a config.
"""


def lines() -> list[str]:
    """What a bug report needs."""

    def build(cuda: str | None) -> str:
        return f"CUDA {cuda}" if cuda else "CPU only"

    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [
        f"spillway  {_build_info.VERSION}",
        f"built for torch {_build_info.TORCH_VERSION}, {build(_build_info.CUDA_VERSION)}, by {_build_info.COMPILER}",
        f"torch     {torch.__version__}, {build(torch.version.cuda)}",
        f"devices   {', '.join(devices) or 'no CUDA device'}",
        f"python    {platform.python_version()} on {platform.platform()}",
    ]


def _checked(accepts: str) -> Callable[[str], str]:
    """The value of an option as it was written, if it is one that the option accepts."""

    def check(text: str) -> str:
        try:
            number = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if accepts == "positive" and not number > 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        if accepts == "not negative" and not number >= 0:
            raise argparse.ArgumentTypeError(f"{text} is below 0")
        if accepts == "share" and not 0 <= number <= 0.99:
            raise argparse.ArgumentTypeError(f"{text} is not within 0 and 0.99")
        return text

    return check


def _add_config(command: argparse.ArgumentParser) -> None:
    from . import _trainer

    command.add_argument("config", nargs="?", default="", metavar="FILE", help=_trainer.config_help)
    command.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE", help=_trainer.set_help
    )


class _Given(argparse.Action):
    """Collects options, by their present names, in the order in which they are given: of one key the last wins."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        name = str(self.const)
        if option_string is not None and option_string != name:
            from . import _trainer

            _trainer.warn_renamed("option", option_string, name)
        namespace.given.append((name, values if isinstance(values, str) else ""))


def _add_option(group: argparse._ActionsContainer, option: _trainer.CommandOption, name: str, text: str) -> None:
    if option.accepts == "nothing":
        group.add_argument(name, action=_Given, const=option.name, nargs=0, help=text, default=argparse.SUPPRESS)
        return
    group.add_argument(
        name,
        action=_Given,
        const=option.name,
        metavar=option.value,
        help=text,
        type=str if option.accepts in ("text", "word") else _checked(option.accepts),
        choices=option.words or None,
        default=argparse.SUPPRESS,
    )


def _add_train(command: argparse.ArgumentParser) -> None:
    from . import _trainer

    _add_config(command)
    command.set_defaults(given=[])
    short_forms = command.add_argument_group(_trainer.short_forms)
    for option in _trainer.train_options():
        group = short_forms if option.keys else command
        _add_option(group, option, option.name, option.help.replace("%", "%%"))
        if option.old_name:
            _add_option(group, option, option.old_name, argparse.SUPPRESS)


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m spillway", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=layout, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    if not has_trainer():
        return parser
    _add_train(
        commands.add_parser(
            "train",
            help="train a language model whose activations Spillway manages",
            description="Train a language model whose activations Spillway manages.",
            epilog=TRAIN_NOTES,
            formatter_class=layout,
            allow_abbrev=False,
        )
    )
    text = "print the settings of a training run: the defaults, or a file's, checked"
    _add_config(commands.add_parser("config", help=text, description=text, allow_abbrev=False))
    return parser


def _run_train(parser: argparse.ArgumentParser, words: argparse.Namespace) -> int:
    names = [name for name, _ in words.given]
    if "--baseline" in names and "--compare" in names:
        parser.error("--baseline excludes --compare")
    from . import _trainer

    options = _trainer.TrainOptions(words.config, words.overrides)
    for name, value in words.given:
        options.set(name, value)
    return train(options)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code; what went wrong is said on standard error."""
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        if given[:1] in (["train"], ["config"]):
            require_trainer()
        parser = _parser()
        words = parser.parse_args(given)
        if words.command == "train":
            return _run_train(parser, words)
        if words.command == "config":
            from . import _trainer

            print(_trainer.config_text(words.config, words.overrides), end="")
        else:
            print("\n".join(lines()))
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return INFEASIBLE if isinstance(error, PlanInfeasible) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
