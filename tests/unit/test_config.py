"""Settings: file, flags, limits, and what a mistake is answered with."""

import argparse
import tomllib
from pathlib import Path

import pytest

from xdna_dictate.config import FLAGS, SETTINGS, Config, add_flags, flags_given, read_config, template
from xdna_dictate.errors import ConfigError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text, "utf-8")
    return path


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert read_config(tmp_path / "none.toml") == Config()


def test_the_template_says_everything_and_changes_nothing(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, template())) == Config()
    uncommented = template().replace("#[profiles.NAME]", "").replace("\n#", "\n").replace("\n ", "\n# ")
    values = tomllib.loads("\n".join(line for line in uncommented.splitlines() if not line.startswith("# ")).split("\n", 1)[1])
    assert set(SETTINGS) - {"profiles"} <= {*values, "replacements", *values.get("replacements", ())}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('model = "x"\nlanguge = "y"', 2, "did you mean language?"),
        ('\n\nbackend = "gpu"', 3, "one of auto, npu, cpu, sim"),
        ("threads = 0", 1, "between 1 and 256"),
        ("threads = 1.5", 1, "a whole number"),
        ("partials = 1", 1, "true or false"),
        ('hotwords = "a"', 1, "a list of texts"),
        ("hotwords = [1]", 1, "a list of texts"),
        ("max_seconds = -1", 1, "between 0 and 86400"),
        ('profile = "work"', 1, "no such profile"),
        ("[profiles.a]\nbackend = 'gpu'", 2, "one of auto"),
        ("\nmodel = x", 2, "Invalid value"),
        ("[replacements]\na = 1", 1, "a table of texts"),
    ],
)
def test_a_mistake_is_answered_with_the_line_and_what_is_allowed(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert message.startswith(f"{path}:{line}:") or f"line {line}" in message


def test_a_profile_is_laid_over_the_settings(tmp_path: Path) -> None:
    text = 'profile = "ru"\nthreads = 1\n[profiles.ru]\nlanguage = "ru"\nmodel = "whisper-base"\n[replacements]\nalfa = "A"'
    config = read_config(written(tmp_path, text))
    assert config.language == ""
    assert (config.in_profile().language, config.in_profile().threads) == ("ru", 1)
    assert config.replacements == {"alfa": "A"}


def test_every_setting_that_fits_has_a_flag() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    assert flags_given(parser.parse_args([])) == {}
    given = flags_given(parser.parse_args(["--no-partials", "--threads", "4", "--hotwords", "Ryzen,Strix", "--max-seconds", "0"]))
    assert Config().with_values(given) == Config(partials=False, threads=4, hotwords=("Ryzen", "Strix"), max_seconds=0.0)
    for entry in FLAGS:
        assert f"--{entry.name.replace('_', '-')}" in parser.format_help()
