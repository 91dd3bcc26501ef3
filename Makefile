# Everything a newcomer needs: `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip

.PHONY: demo test test-all mutants coverage lint check faults bench gallery format docs site results settings robustness clean
.DEFAULT_GOAL := help

# A container may set this; tests start dozens of processes, and each would compile all of fedsol again.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make demo        FedSOL against FedAvg on embedded data: a table, two pictures, a verdict"
	@echo "make test        the tests"
	@echo "make test-all    all tests, with every setting and real deployments (half an hour)"
	@echo "make mutants     small errors in the mathematics, and those that no test notices (some minutes)"
	@echo "make coverage    the tests, and the lines of src that none of them executes"
	@echo "make lint        ruff, import-linter and mypy --strict"
	@echo "make check       lint and test, as in CI"
	@echo "make faults      kill runs at random instants, resume them, compare bit for bit"
	@echo "make bench       benchmarks, measured as ratios"
	@echo "make gallery     the figures, from runs on embedded data: docs/gallery.md"
	@echo "make docs        the generated reference pages, and the tutorials as notebooks"
	@echo "make site        the documentation as a website that works offline: site/index.html"
	@echo "make settings    the quick start with other settings: docs/settings-tried.md (an hour)"
	@echo "make robustness  what each aggregation survives: docs/robustness.md (ten minutes)"
	@echo "make results     docs/results.md, docs/family.md and the leaderboard, from results/"

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("fedsol needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "Installing fedsol into $(VENV): PyTorch and a few smaller packages, some minutes the first time."
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --progress-bar on --editable .
	@touch $@

# What the tests need is heavy (Flower, Ray, trackers), and a demo does without.
$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need: Flower, Ray, trackers, exporters."
	$(PIP) install --progress-bar on --editable '.[dev,flower]'
	@touch $@

demo: $(VENV)/.installed
	@rm -rf demo
	@echo "FedAvg and FedSOL on small images of clothes, 100 clients with few classes each, three seeds:"
	$(BIN)/fedsol compare quickstart --algorithm fedavg,fedsol --seeds 0,1,2 --jobs 2 --out demo
	@echo "What local training preserves of the global model's knowledge:"
	$(BIN)/fedsol analyze demo --what preservation --out demo
	@echo
	@echo "Two pictures: demo/curves.png (test accuracy by round), demo/preservation.png (before and after local training)."
	@echo "Not picked for the win: docs/settings-tried.md has every setting we tried. Try next:"
	@echo "  $(BIN)/fedsol run --set algorithm.rho=1.0     # the quick start alone, with another strength"
	@echo "  $(BIN)/fedsol compare -a fedavg,fedntd,fedsol --set data.partition.shards=5"
	@echo "  $(BIN)/fedsol partition --out demo/partition  # who has which classes: demo/partition/partition.png"
	@echo "  $(BIN)/fedsol report demo -o demo/report.html # one page about all of it, to open in a browser"
	@echo "  $(BIN)/fedsol list experiments                # the paper's, ready to run"

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal

test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "full or not full"

# An environment of its own on top of .venv: the mutmut that knows our pytest wants a click that typer does not.
$(VENV)/mutmut/bin/mutmut: $(VENV)/.installed-dev
	$(BIN)/python -m venv $(VENV)/mutmut
	$(BIN)/python -c 'import sysconfig as s; print(s.get_path("purelib"))' \
		> $$($(VENV)/mutmut/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/fedsol-dev.pth
	$(VENV)/mutmut/bin/python -m pip install --quiet mutmut==3.8.1 click==8.5.1

mutants: $(VENV)/mutmut/bin/mutmut
	rm -rf mutants
	$< run --max-children 2
	$(BIN)/python tools/mutants.py

coverage: $(VENV)/.installed-dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n auto --dist worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --show-missing --skip-covered

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

check: lint test

faults: $(VENV)/.installed-dev
	$(BIN)/python -m tests.support.kill_runs 60

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev
	for question in step_cost peak round_cost peers growth precision stacked sweep_jobs; do $(BIN)/python benchmarks/$$question.py || exit 1; done
	$(BIN)/python benchmarks/report.py

gallery: $(VENV)/.installed-dev
	$(BIN)/python tools/gallery.py

docs: $(VENV)/.installed-dev
	$(BIN)/python -m tools.reference docs/experiment.md
	$(BIN)/python -m tools.commands docs/commands.md
	$(BIN)/python -m tools.method_costs
	$(BIN)/python tools/personal_table.py
	$(BIN)/python -m tools.notebooks

site: $(VENV)/.installed
	$(PIP) install --progress-bar on --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open site/index.html, or serve it to search it too: $(BIN)/python -m http.server --directory site"

settings: $(VENV)/.installed-dev
	$(BIN)/python -m tools.settings_tried

robustness: $(VENV)/.installed-dev
	$(BIN)/python -m tools.robustness

results: $(VENV)/.installed-dev
	$(BIN)/python -m tools.results_page results docs/results.md
	$(BIN)/python -m tools.family_page results docs/family.md
	$(BIN)/fedsol leaderboard results --last 10 --out docs/leaderboard.html

clean:
	rm -rf $(VENV) demo runs dist build site mutants .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
