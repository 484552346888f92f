# The commands of the README. Each sets itself up on a fresh machine: it needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV ?= .venv
TRAIN_VENV ?= .venv-train
BIN := $(VENV)/bin
TESTS ?= tests
TRAIN_TESTS ?= tests/elastic
WORKERS ?= 2

.PHONY: venv train-venv test check demo lock clean
.DEFAULT_GOAL := test

venv: $(VENV)/.ready

# The lock file decides every version; the package itself is linked in place.
$(VENV)/.ready: requirements/dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

check: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Thousands of tests with real processes share two cores with whatever else the machine does. What fails beside the others
# runs once more alone: what fails there too is broken, and what passes only there is in the output, to be mended.
AGAIN := --last-failed --last-failed-no-failures none
TRAIN_PYTEST := PYTHONPATH=src $(TRAIN_VENV)/bin/python -m pytest --confcutdir=tests/elastic -m train

test: check train-venv
	$(BIN)/python -m pytest -n $(WORKERS) $(TESTS) || $(BIN)/python -m pytest $(AGAIN) $(TESTS)
	@if test -e $(TRAIN_VENV)/.ready; then \
	    $(TRAIN_PYTEST) $(TRAIN_TESTS) || $(TRAIN_PYTEST) $(AGAIN) $(TRAIN_TESTS); \
	else echo "SKIPPED the training tests: torch is neither here nor installable ($(TRAIN_VENV))"; fi

# The environment of training programs: the machine's own torch if it has one, otherwise the pinned CPU build.
train-venv: $(TRAIN_VENV)/.tried

$(TRAIN_VENV)/.tried: requirements/train.txt requirements/train-tests.txt requirements/train-stores.txt
	@mkdir -p $(TRAIN_VENV)
	@if $(PYTHON) -c "import torch" 2>/dev/null; then \
	    $(PYTHON) -m venv --system-site-packages $(TRAIN_VENV); \
	else \
	    $(PYTHON) -m venv $(TRAIN_VENV) && \
	    { $(TRAIN_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/train.txt || true; }; \
	fi
	@if $(TRAIN_VENV)/bin/python -c "import torch" 2>/dev/null && \
	    $(TRAIN_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/train-tests.txt; \
	    then touch $(TRAIN_VENV)/.ready; \
	    $(TRAIN_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/train-stores.txt || true; fi
	@touch $@

# DEMO=--keep leaves the plane running.
demo: venv train-venv
	@$(BIN)/python tools/demo.py $(DEMO)

lock:
	uv pip compile --quiet --no-header --no-annotate --group dev --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url pyproject.toml -o requirements/dev.lock

clean:
	rm -rf $(VENV) $(TRAIN_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
