"""Each code that needs a running site is provoked there, and each error names the place and the next step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgepanda.error_codes import usual_cure
from edgepanda.errors import EdgePandaError
from tests.provoke.kit import Words, check_command, check_document, check_error
from tests.provoke.site import CONFIG, MISSING, ON_A_SITE
from tests.rig.cli import Person, set_up


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody whose site is up, with a driver and programs that fail."""
    with set_up(tmp_path_factory.mktemp("site"), CONFIG + MISSING) as someone, someone.up():
        yield someone


@pytest.mark.parametrize("code", ON_A_SITE)
def test_an_error_of_a_site_names_the_place_and_the_next_step(code: str, site: Person) -> None:
    try:
        outcome = ON_A_SITE[code](site)
    except EdgePandaError as error:
        outcome = error
    if isinstance(outcome, EdgePandaError):
        check_error(code, outcome)
    elif isinstance(outcome, Words):
        plain, machine = site.run(*outcome), site.run(*outcome, "--json")
        check_command(code, plain.returncode, plain.stdout, plain.stderr)
        check_document(code, machine.returncode, machine.stdout, machine.stderr)
    else:
        assert isinstance(outcome, dict), f"{code} was not provoked"
        result = outcome["result"]
        assert (outcome["code"], result["code"]) == (code, code)
        text = site.ok("show", outcome["id"])
        assert "Traceback" not in text
        assert (result.get("message") or result["narrative"]).splitlines()[0] in text
        assert usual_cure(code) in text or "; " in result.get("message", ""), text
        assert outcome["capability"] in text
