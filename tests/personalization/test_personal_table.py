"""The tables in the docs are those that the results give."""

from tools import personal_table


def test_the_page_of_personal_models_is_current():
    assert personal_table.main(["--check"]) == 0, "run python tools/personal_table.py"
