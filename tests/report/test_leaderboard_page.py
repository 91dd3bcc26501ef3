"""The leaderboard as a page, in a real browser."""

import pytest

from fedsol.reports.leaderboard import write_leaderboard
from fedsol.studies.leaderboard import Rules
from tests.support.browser import browser, find_chromium, new_page
from tests.support.cli import fedsol
from tests.support.made_runs import make_run

ROWS = "[...document.querySelectorAll('#setting-1 tbody tr')]"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        for name in ("fedavg", "fedsol", "scaffold"):
            make_run(folder / f"{name}-{seed}", {"algorithm.name": name, "seed": seed}, rounds=12)
    make_run(folder / "z <img src=x onerror=alert(2)>", {"data.partition.alpha": 0.7}, rounds=12)
    return folder


@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium here to open the page with")
def test_the_page_sorts_and_shows_where_numbers_come_from(runs, tmp_path):
    write_leaderboard([runs], tmp_path / "board.html", Rules(last=3))
    with browser() as program, new_page(program) as page:
        page.open((tmp_path / "board.html").as_uri())
        titles = page.run("[...document.querySelectorAll('main h2')].map(h => h.innerText)")
        assert [titles[0], titles[-1]] == ["Overview", "Where the numbers come from"]
        assert len(titles) == 4
        assert page.run("document.getElementById('about').innerText") == "10 runs, 3 methods, 2 settings"
        number = "[...document.querySelectorAll('#setting-1 thead th')].findIndex(h => h.innerText.startsWith('seeds'))"
        assert page.run(number) == 2
        shown = page.run(f"{ROWS}.map(r => parseFloat(r.children[3].innerText))")
        assert shown == sorted(shown, reverse=True)  # best first
        page.click("#setting-1 thead button", 3)
        assert page.run(f"{ROWS}.map(r => parseFloat(r.children[3].innerText))") == shown[::-1]
        assert page.run("document.querySelectorAll('#setting-1 thead th')[3].getAttribute('aria-sort')") == "ascending"
        page.click("#setting-1 thead button", 0)
        assert page.run(f"{ROWS}.map(r => r.children[0].innerText)") == ["fedavg", "fedsol", "scaffold"]
        gains = page.run(f"{ROWS}.map(r => [r.children[4].innerText, r.children[5].innerText])")
        assert gains[0] == ["–", "–"]
        assert " to " in gains[1][1]
        assert page.run("document.querySelectorAll('#origins tbody tr').length") == 10
        page.click("#origins summary")
        assert "onerror" in page.run("document.querySelector('#origins').innerText")
        page.click("#theme")
        assert page.problems == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_the_command(runs, tmp_path):
    done = fedsol("leaderboard", runs, "-o", tmp_path / "board.html", "--target", "0.3")
    assert (done.exit_code, "10 runs in 2 settings: " in done.output) == (0, True)
    assert "rounds to 30.00 %" in (tmp_path / "board.html").read_text()
    assert fedsol("leaderboard", tmp_path / "none").exit_code == 2
    folder = fedsol("leaderboard", runs, "-o", tmp_path)
    assert (folder.exit_code, "must be a file such as leaderboard.html" in folder.output) == (2, True)
    assert fedsol("leaderboard", runs, "--last", "0").exit_code == 2
