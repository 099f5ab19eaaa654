"""The command line: parse, dispatch, exit codes. Heavy modules are imported by the commands that need them."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from xdna_asr.errors import AsrError
from xdna_asr.registry import DEFAULT_MODEL
from xdna_asr.runtime.select import BACKENDS
from xdna_dictate import __version__
from xdna_dictate.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, DictateError, exit_code
from xdna_dictate.output.formats import FORMATS

COMMANDS: Final = ("models",)
PRECISIONS: Final = ("int8", "float32")

DESCRIPTION: Final = "Turn speech into text on this computer. Nothing leaves it."
EPILOG: Final = """\
examples:
  xdna-dictate --file talk.wav                         print what is said
  xdna-dictate --file talk.mp3 --format srt --output talk.srt
  xdna-dictate --file *.flac --format json             one line of JSON a file
  arecord -f S16_LE -r 16000 -d 5 | xdna-dictate --file -
  xdna-dictate --file rede.ogg --model whisper-base --language de
  xdna-dictate models list                             which models there are, which are here
  xdna-dictate models download whisper-base

exit codes:
  0    text was written, or there was no speech
  2    bad input: options, or a file that is not audio (the other files are still done)
  3    the model or the back end is not available
  130  interrupted; what was finished has been written

files:
  $XDG_DATA_HOME/xdna-dictate/models (usually ~/.local/share/...)  installed models
"""


class _Parser(argparse.ArgumentParser):
    """Answers a wrong option with one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"xdna-dictate: {message}; see {self.prog} --help\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parsed arguments; whatever follows "--" is a file, even if it looks like an option."""
    options, files = list(argv), []
    if "--" in options and options[0] not in COMMANDS:
        cut = options.index("--")
        options, files = options[:cut], options[cut + 1 :]
    parser = build_parser()
    arguments = parser.parse_args(options)
    arguments.file = [*(arguments.file or []), *files]
    if arguments.command is None and not arguments.file:
        parser.error("nothing to do: name a file with --file")
    return arguments


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; man page and completions are made from it."""
    parser = _Parser(
        prog="xdna-dictate",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"xdna-dictate {__version__}")
    _add_transcription(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_models(commands.add_parser("models", help="list, download, verify or remove models", allow_abbrev=False))
    return parser


def _add_transcription(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("transcription")
    what.add_argument(
        "--file",
        action="extend",
        nargs="*",
        metavar="PATH",
        help="audio files to transcribe; - is standard input, names after -- are taken as they are",
    )
    what.add_argument("--model", default=DEFAULT_MODEL, metavar="ID", help="which model recognises (default: %(default)s)")
    what.add_argument("--language", metavar="CODE", help="what is spoken, such as en or ru (default: heard from the sound)")
    what.add_argument("--translate", action="store_true", help="write English, whatever is spoken (multilingual models)")
    what.add_argument("--prompt", default="", metavar="TEXT", help="names and spellings that may occur")
    form = parser.add_argument_group("output")
    form.add_argument("--format", choices=FORMATS, default="text", help="form of the transcript (default: %(default)s)")
    form.add_argument("--output", metavar="PATH", help="write there instead of standard output; for several files, a folder")
    form.add_argument("--timestamps", action="store_true", help="part the text into sentences with times")
    form.add_argument("--words", action="store_true", help="time every word: a line, a cue or an entry each")
    chatter = form.add_mutually_exclusive_group()
    chatter.add_argument("--quiet", action="store_true", help="no progress bar, no messages but errors")
    chatter.add_argument("--verbose", action="store_true", help="say which device, model and language were used, and the time")
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--backend", choices=BACKENDS, default="auto", help="what computes (default: %(default)s: NPU if usable, else CPU)"
    )
    engine.add_argument("--threads", type=_positive, default=2, metavar="N", help="processor threads (default: %(default)s)")
    engine.add_argument("--precision", choices=PRECISIONS, default="int8", help="arithmetic on the CPU (default: %(default)s)")
    engine.add_argument(
        "--context",
        choices=("sparse", "full"),
        default="sparse",
        help="how much of the silence after a clip is computed (default: %(default)s; full is slower, rarely better)",
    )


def _add_models(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="every known model: size, languages, licence, whether it is here")
    for name, text in (
        ("download", "fetch a model, check it, make it ready; what a cut download has complete is kept"),
        ("verify", "read every byte of an installed model and compare it with what was installed"),
        ("remove", "delete an installed model"),
    ):
        action = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
        action.add_argument("model", metavar="ID", nargs="?" if name == "download" else None, default=DEFAULT_MODEL)
        if name == "download":
            action.add_argument("--quiet", action="store_true", help="no progress bar")
    add = actions.add_parser("import", help="install a Whisper checkpoint from a folder", allow_abbrev=False)
    add.add_argument("folder", metavar="FOLDER", help="holds model.bin or model.safetensors, config.json, tokenizer.json")
    add.add_argument("model", metavar="ID", help="its name here")


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 256:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 256")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Carry out parsed arguments; returns the exit code. Raises DictateError or AsrError."""
    if arguments.command == "models":
        from xdna_dictate.models_command import run_models

        return run_models(arguments)
    from xdna_dictate.file_command import run_files

    return run_files(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the program."""
    # numpy's own threads would spin beside ONNX Runtime's and double the processor time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    arguments = parse(sys.argv[1:] if argv is None else argv)
    try:
        return run(arguments)
    except (DictateError, AsrError) as error:
        print(f"xdna-dictate: {error}", file=sys.stderr)
        return exit_code(error)
    except BrokenPipeError:
        # The reader has left; the interpreter must not find the dead pipe again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"xdna-dictate: {where}{(error.strerror or str(error)).lower()}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
