"""The report in a real browser: it works, complains about nothing and lets nothing in."""

import json

import pytest

import fedsol
from fedsol.data.description import DataDescription, InputTensor
from fedsol.reports.live import LiveView
from fedsol.reports.page import write_report
from tests.support.browser import Page, browser, find_chromium, new_page
from tests.support.made_runs import add_personal, make_run

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium here to open the page with")

HOSTILE = "<script>alert(1)<script><img src=x onerror=alert(2)>"
CURVES = "[...document.querySelectorAll('#curves path[data-method]')]"
ROWS = "[...document.querySelector('#summary table').querySelectorAll('tbody tr')]"
FIRST_COLUMN = f"{ROWS}.map(r => r.children[0].innerText)"


@pytest.fixture(scope="module")
def chromium():
    with browser() as program:
        yield program


def assert_in_order(tab: Page) -> None:
    assert tab.problems == []
    assert [url for url in tab.requests if not url.startswith(("file:", "data:", "http://127.0.0.1:"))] == []


@pytest.fixture
def page(chromium):
    with new_page(chromium) as tab:
        yield tab
        assert_in_order(tab)


@pytest.fixture
def phone(chromium):
    with new_page(chromium, phone=True) as tab:
        yield tab
        assert_in_order(tab)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Three methods over two seeds with analyses, an unfinished run, and one with a hostile name."""
    folder = tmp_path_factory.mktemp("mixed")
    for name in ("fedavg", "fedsol", "scaffold"):
        for seed in range(2):
            finished = 20 if (name, seed) == ("scaffold", 1) else None
            changes = {"seed": seed, "algorithm.name": name}
            make_run(folder / name / f"seed-{seed}", changes, rounds=30, analyses=True, finished=finished)
            add_personal(folder / name / f"seed-{seed}")
    make_run(folder / HOSTILE, {"data.name": f"</script>{HOSTILE}.npz"}, rounds=30)
    write_report([folder], folder / "report.html")
    return (folder / "report.html").as_uri()


def press(tab: Page, method: str) -> None:
    numbers = tab.run("[...document.querySelectorAll('#curves .legend button')].map(b => b.dataset.method)")
    tab.click("#curves .legend button", numbers.index(method))


def test_every_section_is_there(page, mixed):
    page.open(mixed)
    titles = page.run("[...document.querySelectorAll('main h2')].map(h => h.innerText)")
    assert titles == [
        "In words", "Summary", "Learning curves", "Accuracy by class", "Client accuracies", "Analyses", "Partition",
        "Settings that differ", "Environment", "Reproduce",
    ]  # fmt: skip
    assert page.run(f"{CURVES}.length") == 4
    assert page.run("document.querySelectorAll('#analyses .chart path[data-method]').length") == 6
    assert page.run("document.querySelectorAll('#classes image').length") == 2
    assert page.run("document.querySelectorAll('#partition .bar').length") == 20
    assert "effective classes per client, Gini" in page.run("document.querySelector('#partition').innerText")
    assert "unfinished" in page.run("document.querySelector('#summary').innerText")


def test_the_legend_toggles_methods_in_all_charts(page, mixed):
    page.open(mixed)
    press(page, "fedsol data.name=digits")
    assert page.run(f"{CURVES}.map(p => p.dataset.method).includes('fedsol data.name=digits')") is False
    assert page.run(f"{CURVES}.length") == 3
    pressed = "document.querySelectorAll('.legend button[aria-pressed=false]').length"
    assert page.run(pressed) == 3  # in all legends
    assert page.run("document.querySelectorAll('#analyses .chart path[data-method]').length") == 4
    press(page, "fedsol data.name=digits")
    assert page.run(f"{CURVES}.length") == 4
    assert page.run(pressed) == 0


def test_tables_sort_by_value_both_ways(page, mixed):
    page.open(mixed)
    values = f"{ROWS}.map(r => parseFloat(r.children[3].innerText))"
    page.click("#summary thead button", 3)
    falling = page.run(values)
    assert falling == sorted(falling, reverse=True)
    assert page.run("document.querySelectorAll('#summary thead th')[3].getAttribute('aria-sort')") == "descending"
    page.click("#summary thead button", 3)
    assert page.run(values) == sorted(falling)
    page.click("#summary thead button", 0)
    names = page.run(FIRST_COLUMN)
    assert names == sorted(names)


def test_the_target_accuracy_can_be_changed(page, mixed):
    page.open(mixed)
    reached = f"{ROWS}.map(r => r.children[5].innerText)"
    set_to = "const f = document.querySelector('#target'); f.value = '{}'; f.dispatchEvent(new Event('input'))"
    page.run(set_to.format(100).join("{}"))
    assert page.run(reached) == ["never"] * 4
    page.run(set_to.format(1).join("{}"))
    assert page.run(reached)[0] in ("1", "1 ± 0")
    assert page.run("document.querySelectorAll('#summary thead button')[5].innerText").startswith("rounds to 1 %")


def test_smoothing_metric_axis_and_bands_redraw_the_curves(page, mixed):
    page.open(mixed)
    drawn = [page.run("document.querySelector('#curves .chart svg').outerHTML")]
    bands = "document.querySelectorAll('#curves .band').length"
    assert page.run(bands) == 3
    change = "{{const e = document.querySelectorAll('#curves .controls {}')[{}]; e.value = '{}';"
    change += "e.dispatchEvent(new Event('{}', {{bubbles: true}}))}}"
    for selector, number, value, event in (
        ("input", 0, "9", "input"),
        ("select", 1, "bytes", "change"),
        ("select", 0, "test_loss", "change"),
    ):
        page.run(change.format(selector, number, value, event))
        drawn.append(page.run("document.querySelector('#curves .chart svg').outerHTML"))
    assert len(set(drawn)) == 4
    assert "sent and received" in drawn[2]
    assert "MB" in drawn[2]
    page.run(change.format("select", 2, "none", "change"))
    assert page.run(bands) == 0
    page.run(change.format("select", 2, "seeds", "change"))
    assert page.run("document.querySelectorAll('#curves .single').length") == 6


def test_analyses_begin_with_the_whole_model_and_do_not_draw_ids(page, mixed):
    page.open(mixed)
    options = page.run("[...document.querySelectorAll('#analyses select')].map(s => [...s.options].map(o => o.text))")
    assert options[0] == [
        "distance global–local, by client", "distance local–local, by client",
        "distance global–local: conv", "distance global–local: head",
        "distance local–local: conv", "distance local–local: head",
    ]  # fmt: skip
    assert options[1][:2] == [
        "accuracy of the global model, before local training",
        "accuracy of local models, after local training",
    ]
    assert "50 %" in page.run("[...document.querySelectorAll('#analyses .chart')][1].textContent")


def test_client_accuracies_are_a_table_and_curves_from_worst_to_best(page, mixed):
    page.open(mixed)
    rows = page.run(
        "[...document.querySelectorAll('#clients tbody tr')].map(r => [...r.children].map(c => c.innerText))"
    )
    assert len(rows) == 3 * 4
    own = [row[1:] for row in rows if row[0].strip() == "fedavg data.name=digits"]
    assert own[1] == [
        "global model", "own matched test set", "8", "15.00 %", "11.18 %", "0.00 %", "30.00 %"
    ]  # fmt: skip
    assert own[3][0] == "finetune, 5 epochs"
    assert own[3][3] == "65.00 %"
    curves = "[...document.querySelectorAll('#clients path[data-method]')]"
    assert page.run(f"{curves}.length") == 3
    assert page.run("document.querySelector('#clients select').value") == "finetune, 5 epochs (own matched test set)"
    first = page.run(f"{curves}[0].getAttribute('d')")
    page.run(
        "(() => { const s = document.querySelector('#clients select'); s.selectedIndex = 0;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert page.run(f"{curves}[0].getAttribute('d')") != first


def test_clients_with_names_are_listed_by_name(page, tmp_path):
    names = tuple(f"clinic {number}" for number in range(8))
    for seed in range(2):
        run = make_run(tmp_path / f"seed-{seed}", {"seed": seed}, rounds=3)
        add_personal(run)
        inputs = {"inputs": InputTensor("uint8", (1, 8, 8))}
        description = DataDescription("own", "images", inputs, 10, client_names=names)
        (run / "data.json").write_text(description.to_json())
    write_report([tmp_path], tmp_path / "report.html")
    page.open((tmp_path / "report.html").as_uri())
    table = (
        "[...document.querySelectorAll('#clients details tbody tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    rows = page.run(table)
    assert [row[0] for row in rows] == list(names)
    pooled = "document.querySelectorAll('#clients table')[0].querySelectorAll('tbody tr')[2].children[4].textContent"
    accuracies = [float(row[1].removesuffix(" %")) for row in rows if row[1] != "–"]  # not all have a test set
    assert page.run(pooled) == f"{sum(accuracies) / len(accuracies):.2f} %"
    below = "[...document.querySelectorAll('#partition svg text')].map(text => text.textContent)"
    assert set(names) <= set(page.run(below))


def test_a_deployment_without_a_test_set_shows_what_clients_held_out(page, tmp_path):
    for name, test in (("a", False), ("b", True)):
        folder = make_run(tmp_path / name / "run", rounds=4)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            held_out = {"held_out_clients": 20, "held_out_accuracy": 0.1 * row["round"], "held_out_std": 0.2}
            missing = {"test_accuracy": None, "test_loss": None, "class_accuracy": None}
            row.update({**held_out, **({} if test else missing)})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    headings = "[...document.querySelectorAll('#summary table')[0].querySelectorAll('th button')].map(b => b.innerText)"
    write_report([tmp_path / "a"], tmp_path / "report.html")
    page.open((tmp_path / "report.html").as_uri())
    assert "final held-out accuracy" in page.run(headings)
    assert "40.00 %" in page.run(f"{ROWS}[0].innerText")
    assert page.run("document.querySelector('#curves select').value") == "held_out_accuracy"
    assert page.run(f"{CURVES}.length") == 1
    assert page.run("document.querySelector('#classes')") is None
    write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "both.html")
    page.open((tmp_path / "both.html").as_uri())
    assert page.run(headings)[3:6] == ["final accuracy", "best accuracy", "held-out accuracy"]
    cells = page.run(f"{ROWS}.map(r => [...r.children].slice(3, 6).map(c => c.innerText))")
    assert cells[0] == ["–", "–", "40.00 %"]
    assert cells[1][2] == "40.00 %"


def test_runs_that_validation_stopped_say_so_and_show_the_round_it_chose(page, tmp_path):
    for seed, ends in ((0, 4), (1, 6)):
        changes = {"seed": seed, "data.validation": 0.1, "server.patience": 2}
        folder = make_run(tmp_path / f"seed-{seed}", changes, rounds=9, finished=ends)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            row.update(test_accuracy=0.1 * row["round"], validation_accuracy=0.5 if row["round"] == ends - 2 else 0.4)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make_run(tmp_path / "whole", {"algorithm.name": "fedavg"}, rounds=9)
    write_report([tmp_path], tmp_path / "report.html")
    page.open((tmp_path / "report.html").as_uri())
    cells = page.run(f"{ROWS}.map(r => [...r.children].slice(2, 5).map(c => c.innerText))")
    assert cells[0] == ["4 to 6 stopped", "50.00 ± 14.14 %", "30.00 ± 14.14 %"]  # rounds 2 and 4, not the highest
    assert cells[1][0] == "9"
    note = page.run("document.querySelector('#summary .note').innerText")
    assert "The best accuracy is that of the round which the validation set chose; of runs without one, the" in note
    assert "Where some runs have stopped, curves are means over the others." in note
    single = "[...document.querySelectorAll('#summary table')[1].querySelectorAll('tbody tr')]"
    assert page.run(f"{single}.map(r => r.children[3].textContent)")[0] == (
        "4 no better validation accuracy than in round 2 for 2 evaluated rounds (server.patience)"
    )
    options = page.run("[...document.querySelector('#curves select').options].map(o => o.text)")
    assert options[:2] == ["test accuracy", "validation accuracy"]


def test_samples_without_a_class_are_counted_by_client_alone(page, tmp_path):
    make_run(tmp_path / "run", classes=1)
    write_report([tmp_path], tmp_path / "report.html")
    page.open((tmp_path / "report.html").as_uri())
    section = page.run("document.querySelector('#partition').innerText")
    assert "few samples" not in section
    assert "class" not in section
    assert page.run("document.querySelectorAll('#partition svg image').length") == 0


def test_hover_and_arrow_keys_tell_the_values(page, mixed):
    page.open(mixed)
    page.run("document.querySelector('#curves svg').scrollIntoView({block: 'center', behavior: 'instant'})")
    x, y = page.run(
        "(() => { const b = document.querySelector('#curves .chart').getBoundingClientRect();"
        "return [b.right - 14, b.top + 90] })()"
    )
    page.tab.mouse.move(x, y)
    tip = page.run("document.querySelector('#curves .tip').innerText")
    assert tip.startswith("round 30")
    assert tip.count("%") >= 4
    page.run("document.querySelector('#curves .chart svg').focus()")
    key = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home', bubbles: true}))"
    page.run(key)
    assert "round 1 " in page.run("document.querySelector('#curves .readout').textContent")
    page.run("document.querySelector('#classes .chart svg').focus()")
    page.run(key.replace("Home", "ArrowRight"))
    assert page.run("document.querySelector('#classes .readout').textContent").startswith("round 1, class 0:")


def test_hostile_names_are_shown_and_do_nothing(page, mixed):
    page.open(mixed)
    assert HOSTILE in page.run("document.querySelector('#summary details').textContent")
    assert HOSTILE in page.run("document.querySelector('#about').textContent")
    assert page.run("document.querySelectorAll('main script, main img').length") == 0
    assert page.run("document.scripts.length") == 2


def test_the_policy_forbids_scripts_that_are_not_the_pages_own(chromium, mixed):
    script = "const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.body.append(s)"
    with new_page(chromium) as tab:
        tab.open(mixed)
        tab.run(f"{{{script}}}")
        assert tab.run("window.bad") is None
        assert any("Content Security Policy" in problem for problem in tab.problems)


def test_twenty_runs_of_three_hundred_rounds_still_respond(page, tmp_path):
    for index in range(20):
        make_run(tmp_path / str(index), {"algorithm.rho": index / 10}, rounds=300, analyses=True)
    write_report([tmp_path], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size <= 8_000_000
    page.open((tmp_path / "report.html").as_uri())
    assert page.run(f"{CURVES}.length") == 20
    before = page.run(f"{CURVES}[19].getAttribute('d')")
    page.run("{const e = document.querySelector('#smoothing'); e.value = 25; e.dispatchEvent(new Event('input'))}")
    assert page.run(f"{CURVES}[19].getAttribute('d')") != before
    press(page, "fedsol rho=0.5")
    assert page.run(f"{CURVES}.length") == 19
    page.click("#summary thead button", 3)
    assert page.run(FIRST_COLUMN)[0].strip() == "fedsol rho=1.9"


def test_a_phone_needs_no_sideways_scrolling(phone, mixed):
    phone.open(mixed)
    assert phone.run("document.documentElement.scrollWidth") == 390
    assert phone.run("document.querySelector('#curves svg').getBoundingClientRect().width") < 390


def test_light_and_dark_follow_the_system_and_the_button(page, mixed):
    color = "getComputedStyle(document.body).backgroundColor"
    page.open(mixed)
    light = page.run(color)
    page.open(mixed, dark=True)
    dark = page.run(color)
    assert light != dark
    page.click("#theme")
    assert page.run(color) == light
    page.click("#theme")
    assert page.run(color) == dark
    assert page.run("document.querySelector('#theme').innerText") == "Theme: dark"
    page.click("#theme")


def test_everything_that_can_be_used_has_a_name(page, mixed):
    page.open(mixed)
    nameless = (
        "[...document.querySelectorAll('button, select, input, svg[role=img]')].filter(e => !(e.textContent || "
        "e.getAttribute('aria-label') || (e.labels && e.labels.length))).length"
    )
    assert page.run(nameless) == 0
    ids = page.run("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_one_run_without_class_counts_or_rounds_is_shown_as_far_as_it_goes(page, tmp_path):
    run = make_run(tmp_path / "run", rounds=3, counts=False)
    write_report([run], tmp_path / "report.html")
    page.open((tmp_path / "report.html").as_uri())
    assert page.run("document.querySelector('#settings')") is None
    assert "The classes of each client are unknown" in page.run("document.querySelector('#partition').innerText")
    choices = page.run("[...document.querySelector('#curves select').options].map(option => option.value)")
    assert choices[:3] == ["test_accuracy", "test_loss", "train_loss"]
    assert "rejected" not in choices  # always zero
    (run / "metrics.jsonl").write_text("")
    (run / "partition.json").unlink()
    (run / "environment.json").unlink()
    write_report([run], tmp_path / "report.html")
    page.open((tmp_path / "report.html").as_uri())
    assert "0 of 3" in page.run("document.querySelector('#summary').innerText")


def test_the_live_page_follows_the_run_to_its_end(page, tiny, tmp_path):
    out = tmp_path / "run"

    class Look(fedsol.Callback):
        def round_finished(self, result):
            if result.round == 1:
                page.open(live.address)
            page.until(f"document.querySelector('#state').innerText === 'live: {result.round} of 3 rounds'")

    with LiveView(out) as live:
        fedsol.train(tiny.override({"rounds": 3}), [live, Look()], out)
    page.until("document.querySelector('#state').innerText === 'ended after 3 of 3 rounds'")
    assert page.run(f"{CURVES}[0].getAttribute('d').split('L').length") == 3


def test_the_best_is_marked_only_where_it_differs_by_more_than_the_spread(page, tmp_path):
    for name, heights in {"fedavg": (0.5, 0.52), "fedsol": (0.7, 0.72), "fedntd": (0.69, 0.73)}.items():
        for seed, height in enumerate(heights):
            run = make_run(tmp_path / name / f"seed-{seed}", {"seed": seed, "algorithm.name": name}, rounds=3)
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            text = "".join(json.dumps({**row, "test_accuracy": height}) + "\n" for row in rows)
            (run / "metrics.jsonl").write_text(text)
    marked = f"{ROWS}.filter(r => r.children[3].className.includes('best')).map(r => r.children[0].innerText.trim())"
    write_report([tmp_path / "fedavg", tmp_path / "fedsol"], tmp_path / "two.html")
    page.open((tmp_path / "two.html").as_uri())
    assert page.run(marked) == ["fedsol"]
    write_report([tmp_path], tmp_path / "three.html")
    page.open((tmp_path / "three.html").as_uri())
    assert page.run(marked) == []


def test_two_methods_stand_side_by_side_and_below_each_other_on_a_phone(page, phone, mixed):
    tops = "[...document.querySelectorAll('#classes .pair > *')].map(map => map.getBoundingClientRect().top)"
    page.open(mixed)
    first, second = page.run(tops)
    assert first == second
    chosen = page.run("[...document.querySelectorAll('#classes select')].map(s => s.selectedOptions[0].innerText)")
    assert chosen[0].split(",")[0] != chosen[1].split(",")[0]
    assert chosen[0].split(",")[1] == chosen[1].split(",")[1]
    phone.open(mixed)
    first, second = phone.run(tops)
    assert first < second
    assert phone.run("document.documentElement.scrollWidth <= innerWidth")


def test_dark_is_more_in_every_heat_map(page, mixed):
    page.open(mixed)
    brightness = "[0, 396].map(at => d[at] + d[at + 1] + d[at + 2])"
    ends = page.run(
        "[...document.querySelectorAll('.scale canvas')].map(c => c.getContext('2d').getImageData(0, 0, 100, 1).data)"
        f".map(d => {brightness})"
    )
    assert len(ends) == 2
    assert all(low > high for low, high in ends)
