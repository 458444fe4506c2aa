"""How a document is read: what is a command, what is output, what would go unrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.guide import called, cron_command, matches, mentioned, parse, split

PAGE = Path("page.md")


def test_a_block_is_its_commands_one_by_one() -> None:
    text = "# a comment\none\n\ntwo \\\n  more\ncat >file <<'END'\n# not a comment\nlast\\\nEND\nthree\n"
    assert split(text) == [
        (2, "one"),
        (4, "two \\\n  more"),
        (6, "cat >file <<'END'\n# not a comment\nlast\\\nEND"),
        (10, "three"),
    ]


def test_a_command_without_an_end_is_told() -> None:
    with pytest.raises(ValueError, match="no end"):
        split("cat <<END\nnever\n")


def test_machine_exit_code_and_output_belong_to_the_last_command() -> None:
    guide = parse("```sh pi2 exits=4\none\ntwo\n```\n\n```text\nit is ...\n```\n", PAGE)
    first, last = guide.steps
    assert (first.machine, first.code, first.shown, first.where) == ("pi2", 0, None, "page.md:2")
    assert (last.machine, last.code, last.shown, last.where) == ("pi2", 4, "it is ...", "page.md:3")


def test_text_with_prose_between_is_compared_with_nothing_and_told() -> None:
    guide = parse("```sh\none\n```\nIt may say:\n```text\nboo\n```\n", PAGE)
    assert guide.idle == ["boo\n"]
    assert guide.steps[0].shown is None


def test_stage_directions() -> None:
    guide = parse("<!-- after first.md -->\nPull the plug.\n<!-- power-cut pi1 -->\n", PAGE)
    assert guide.after == ["first.md"]
    assert [(step.kind, step.machine) for step in guide.steps] == [("power-cut", "pi1")]


@pytest.mark.parametrize(
    "text", ["```bash\nx\n```\n", "```sh later\nx\n```\n", "```\nx\n```\n", "<!-- dance pi1 -->\n"]
)
def test_what_nothing_would_run_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md:1"):
        parse(text, PAGE)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a ...", "a b", True),
        ("a", "a\nb", False),
        ("...\nb", "a\nb", True),
        ("a...z", "a\nb", False),
        ("[limit]", "l", False),
    ],
)
def test_output_is_compared_whole(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_a_line_of_cron_is_what_its_shell_gets() -> None:
    assert cron_command(r"*/5 7-9 * * *  date +\%F") == "date +%F"
    assert cron_command("@reboot date") == "date"


def test_commands_in_prose_are_found_and_those_in_blocks_are_not() -> None:
    text = "Look at `edgepanda card` or `.venv/bin/edgepanda nodes add NAME`.\n```sh\nedgepanda up\n```\n"
    assert mentioned(text) == {("card", ""), ("nodes", "add")}
    assert called("edgepanda up; ./edgepanda do pan.move 3") == {("up", ""), ("do", "pan")}
