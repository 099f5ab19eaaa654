from xdna_dictate.cli import parse


def test_files_may_be_named_in_any_way() -> None:
    assert parse(["--file", "a", "--file", "b", "c"]).file == ["a", "b", "c"]
    assert parse(["--file", "a", "--", "-b", "--c"]).file == ["a", "-b", "--c"]
    assert parse(["--", "-b"]).file == ["-b"]


def test_a_command_keeps_what_follows_two_dashes() -> None:
    assert parse(["models", "download", "--", "whisper-base"]).model == "whisper-base"
    assert parse(["models", "verify", "--", "-odd"]).model == "-odd"
