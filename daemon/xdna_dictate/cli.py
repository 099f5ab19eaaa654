"""The command line: parse, dispatch, exit codes. Heavy modules are imported by the commands that need them."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from xdna_asr.errors import AsrError
from xdna_asr.registry import DEFAULT_MODEL
from xdna_asr.runtime.select import BACKENDS
from xdna_dictate import __version__
from xdna_dictate.config import PRECISIONS, add_flags
from xdna_dictate.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, DictateError, exit_code
from xdna_dictate.output.formats import FORMATS
from xdna_dictate.session import Mode

DESCRIPTION: Final = "Turn speech into text on this computer. Nothing leaves it."
EPILOG: Final = """\
examples:
  xdna-dictate --file talk.wav                         print what is said
  xdna-dictate --file talk.mp3 --format srt --output talk.srt
  xdna-dictate --file *.flac --format json             one line of JSON a file
  arecord -f S16_LE -r 16000 -d 5 | xdna-dictate --file -
  xdna-dictate --file rede.ogg --model whisper-base --language de
  xdna-dictate dictate                                 one sentence from the microphone
  xdna-dictate listen                                  text as you speak, until Ctrl-C
  xdna-dictate toggle                                  for a desktop shortcut: start, and stop
  xdna-dictate doctor                                  what works here, and what to do about the rest
  xdna-dictate models list                             which models there are, which are here
  xdna-dictate models download whisper-base

exit codes:
  0    text was written, or there was no speech
  2    bad input: options, or a file that is not audio (the other files are still done)
  3    the model, the back end, the microphone or the daemon is not available, or nobody spoke
  130  interrupted; what was finished has been written

files:
  $XDG_DATA_HOME/xdna-dictate/models (usually ~/.local/share/...)  installed models
  $XDG_CONFIG_HOME/xdna-dictate/config.toml (~/.config/...)        settings; see xdna-dictate config --template
  $XDG_STATE_HOME/xdna-dictate/kept (~/.local/state/...)           long dictations until they are delivered
"""

_DAEMON_HELP: Final = """\
Serve dictation on the session bus as io.github.xdna_dictate.Dictate1 until SIGTERM. Settings come from config.toml; a flag
here goes before it. SIGHUP, or a change of the file, reads it again."""


class _Parser(argparse.ArgumentParser):
    """Answers a wrong option with one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"xdna-dictate: {message}; see {self.prog} --help\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parsed arguments; whatever follows "--" is a file, even if it looks like an option."""
    options, files = list(argv), []
    parser = build_parser()
    if "--" in options and options[0] not in commands(parser):
        cut = options.index("--")
        options, files = options[:cut], options[cut + 1 :]
    arguments = parser.parse_args(options)
    arguments.file = [*(arguments.file or []), *files]
    if arguments.command is None and not arguments.file:
        parser.error("nothing to do: name a file with --file, or a command")
    return arguments


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    [action] = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


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
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_daemon(subparsers)
    _add_client(subparsers)
    _add_local(subparsers)
    _add_models(subparsers.add_parser("models", help="list, download, verify or remove models", allow_abbrev=False))
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


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    return made


def _add_daemon(commands: Any) -> None:
    daemon = commands.add_parser(
        "daemon", help="serve dictation on the session bus", description=_DAEMON_HELP, allow_abbrev=False
    )
    daemon.add_argument("--verbose", action="store_true", help="log more; never what was said")
    add_flags(daemon)


def _add_client(commands: Any) -> None:
    _command(commands, "toggle", "start a dictation, or stop the one that is on; prints the new state")
    start = _command(commands, "start", "start a dictation; its text goes to the bus")
    start.add_argument("--mode", choices=tuple(Mode), help="what ends it besides stop (default: as configured)")
    start.add_argument("--language", metavar="CODE", help="what is spoken")
    start.add_argument("--model", metavar="ID", help="which model recognises")
    start.add_argument("--max-seconds", type=_positive, metavar="N", help="longest time")
    _command(commands, "stop", "end the dictation; its text follows")
    _command(commands, "cancel", "end the dictation and throw its sound away")
    _command(commands, "press", "the hotkey went down: a tap toggles, holding dictates while the key is down")
    _command(commands, "release", "the hotkey went up")
    dictate = _command(commands, "dictate", "one dictation that ends on silence; prints its text")
    dictate.add_argument("--seconds", type=float, default=0.0, metavar="N", help="longest wait (default: no limit)")
    listen = _command(commands, "listen", "print text as it is spoken, until Ctrl-C; a level meter shows that you are heard")
    listen.add_argument(
        "--mode", choices=("continuous", "once"), default="continuous", help="when it ends (default: %(default)s)"
    )
    status = _command(commands, "status", "what the daemon does")
    status.add_argument("--json", action="store_true", help="every property, for machines")
    recover = _command(commands, "recover", "print the text of dictations that were not delivered: a crash, a lost microphone")
    recover.add_argument("--last", action="store_true", help="only the newest one")
    recover.add_argument("--language", metavar="CODE", help="what was spoken")
    recover.add_argument("--model", metavar="ID", help="which model recognises")


def _add_local(commands: Any) -> None:
    doctor = _command(commands, "doctor", "what works on this computer, and what to do about the rest")
    doctor.add_argument("--json", action="store_true", help="for machines")
    config = _command(commands, "config", "show the settings")
    config.add_argument("--template", action="store_true", help="print a file that explains every setting")
    install = _command(
        commands, "install", "let the first call on the session bus start the daemon (for venv and pipx installations)"
    )
    install.add_argument("--remove", action="store_true", help="undo it")


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
    if arguments.command == "daemon":
        from xdna_dictate.daemon_command import run_daemon

        return run_daemon(arguments)
    if arguments.command in ("doctor", "config", "install"):
        from xdna_dictate import local_commands

        return int(getattr(local_commands, f"run_{arguments.command}")(arguments))
    if arguments.command:
        from xdna_dictate.client_commands import run_client

        return run_client(arguments)
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
