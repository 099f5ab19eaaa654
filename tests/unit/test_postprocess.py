"""Spoken commands, replacements, vocabulary and spacing."""

import pytest

from xdna_dictate.output.postprocess import PostProcessor, joiner


@pytest.mark.parametrize(
    ("language", "heard", "written"),
    [
        ("en", "Dear John comma new line thank you full stop", "Dear John,\nThank you."),
        ("en", "Is that so? Question mark. Yes, new paragraph, I think so.", "Is that so? Yes\n\nI think so."),
        ("en", "See open bracket page two close bracket.", "See (page two)"),
        ("en", "The comma separated list", "The, separated list"),
        ("de", "Liebe Anna, Komma. Neue Zeile, danke Punkt", "Liebe Anna,\nDanke."),
        ("fr", "Bonjour virgule ça va point d'interrogation", "Bonjour, ça va\u00a0?"),
        ("es", "Hola coma nueva línea gracias punto", "Hola,\nGracias."),
        ("ru", "Привет запятая новая строка спасибо точка", "Привет,\nСпасибо."),
    ],
)
def test_spoken_commands(language: str, heard: str, written: str) -> None:
    assert PostProcessor(spoken_commands=True).process(heard, language) == written


def test_commands_are_words_until_asked_for() -> None:
    assert PostProcessor().process("Put a comma there.", "en") == "Put a comma there."


def test_replacements_are_whole_words_in_any_case() -> None:
    processor = PostProcessor(replacements={"x d n a": "XDNA", "rise in": "Ryzen", "r": r"\1"})
    assert processor.process("The X D N A in a Rise in, rising", "en") == "The XDNA in a Ryzen, rising"
    assert processor.held_back("en") == 3


def test_scripts_without_spaces() -> None:
    assert PostProcessor(replacements={"東京": "Tokyo"}).process("私は東京に住む", "ja") == "私はTokyoに住む"
    assert joiner("今日は", "晴れ", "ja") == ""
    assert [joiner("a", "b", "en"), joiner("a", ", b", "en"), joiner("a\n", "b", "en"), joiner("", "b", "en")] == [
        " ",
        "",
        "",
        "",
    ]


def test_a_word_that_is_nearly_a_hotword_becomes_it() -> None:
    processor = PostProcessor(hotwords=["Whittemore", "Ryzen"])
    assert processor.process("Mr Whitmore bought a Rizen and a raisin.", "en") == "Mr Whittemore bought a Ryzen and a raisin."


def test_french_puts_a_space_before_double_marks_but_not_in_times() -> None:
    assert PostProcessor().process("Quoi? À 12:30 ! Oui: bien", "fr") == "Quoi\u00a0? À 12:30\u00a0! Oui\u00a0: bien"
