# The commands of the README. Each sets itself up on a fresh machine: it needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV ?= .venv
TRAIN_VENV ?= .venv-train
FRAMEWORKS_VENV ?= .venv-frameworks
DOCS_VENV ?= .venv-docs
BIN := $(VENV)/bin
TESTS ?= tests
TRAIN_TESTS ?= tests/elastic
# Tests that need neither torch nor a node: coverage measures these, in the test's own process and in the planes they start.
COVERAGE_TESTS ?= tests/api tests/core tests/kube tests/apiserver tests/controllers tests/jobset tests/trainjob
WORKERS ?= 2
FLAKY := build/flaky-tests.txt

.PHONY: venv train-venv frameworks-venv docs-venv test run-tests test-long check coverage demo docs reference console console-pages console-test lock clean
.DEFAULT_GOAL := test

venv: $(VENV)/.ready

# The lock file pins every version; the package itself is an editable install.
$(VENV)/.ready: requirements/dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# The elastic runtime is checked against the torch that it trains with; mypy's own environment has no torch.
TORCH_SOURCES := src/torchyard/elastic tests/elastic
TORCH_MYPY := $(BIN)/mypy --cache-dir .mypy_cache/torch --python-executable $(TRAIN_VENV)/bin/python

check: venv train-venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@if test -e $(TRAIN_VENV)/.ready; then \
	    echo "mypy with torch: $(TORCH_SOURCES)"; $(TORCH_MYPY) $$(find $(TORCH_SOURCES) -name '*.py'); \
	else echo "SKIPPED mypy of $(TORCH_SOURCES): torch is neither installed nor installable ($(TRAIN_VENV))"; fi
	$(BIN)/lint-imports --no-cache

# The tests start thousands of real processes on a machine that may be busy. A test that fails runs once more, alone. If it
# fails again, it is broken. If it passes, it is flaky: its name goes into $(FLAKY), which is printed at the end.
AGAIN := --last-failed --last-failed-no-failures none -p tests.support.flaky --flaky-file $(FLAKY)
# A worker takes whole runs of tests from the list, so the planes that a module's tests share start once, not once per worker.
DISTRIBUTE := -n $(WORKERS) --dist worksteal
TRAIN_PYTEST := PYTHONPATH=src $(TRAIN_VENV)/bin/python -m pytest --confcutdir=tests/elastic -m train

test: check train-venv docs-venv console-pages
	@mkdir -p $(dir $(FLAKY)) && : > $(FLAKY)
	@status=0; $(MAKE) --no-print-directory run-tests || status=$$?; \
	if test -s $(FLAKY); then echo "Flaky tests (failed, then passed alone):"; cat $(FLAKY); else echo "No flaky tests."; fi; \
	exit $$status

run-tests:
	$(BIN)/python -m pytest $(DISTRIBUTE) $(TESTS) || $(BIN)/python -m pytest $(AGAIN) $(TESTS)
	@if test -e $(TRAIN_VENV)/.ready; then \
	    $(TRAIN_PYTEST) $(DISTRIBUTE) $(TRAIN_TESTS) || $(TRAIN_PYTEST) $(AGAIN) $(TRAIN_TESTS); \
	else echo "SKIPPED the training tests: torch is not installed and pip cannot install it ($(TRAIN_VENV))"; fi

# Every client version, the long fuzz runs and the long crash tests: hours.
test-long: check train-venv frameworks-venv
	TORCHYARD_TESTS=full $(MAKE) test
	@if test -e $(FRAMEWORKS_VENV)/.ready; then \
	    TORCHYARD_TESTS=full TORCHYARD_FRAMEWORKS=1 PYTHONPATH=src $(FRAMEWORKS_VENV)/bin/python -m pytest \
	        --confcutdir=tests/elastic -m train $(FRAMEWORKS_TESTS); \
	else echo "SKIPPED the tests of frameworks: pip cannot install them ($(FRAMEWORKS_VENV))"; fi

# The floor is in pyproject.toml. Raise it when the figure rises; never lower it.
coverage: venv
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(WORKERS) -p tests.support.save_coverage $(COVERAGE_TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

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

# Hugging Face, TRL, Lightning and streaming datasets, on the torch of the training environment. Some of them pin other
# versions of what is there already: those are installed without their dependencies.
FRAMEWORKS_TESTS := tests/elastic/test_frameworks.py tests/elastic/test_examples.py tests/elastic/test_streaming.py
FRAMEWORKS_PIP := $(FRAMEWORKS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check
frameworks-venv: $(FRAMEWORKS_VENV)/.tried

$(FRAMEWORKS_VENV)/.tried: $(TRAIN_VENV)/.tried requirements/train-frameworks.txt requirements/train-frameworks-no-deps.txt
	@$(PYTHON) -m venv $(FRAMEWORKS_VENV)
	@$(TRAIN_VENV)/bin/python -c "import sys; print('\n'.join(p for p in sys.path if 'packages' in p))" \
	    > $$($(FRAMEWORKS_VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/train.pth
	@if $(FRAMEWORKS_PIP) -r requirements/train-frameworks.txt && \
	    $(FRAMEWORKS_PIP) --no-deps -r requirements/train-frameworks-no-deps.txt; then touch $(FRAMEWORKS_VENV)/.ready; fi
	@touch $@

# DEMO=--keep leaves the plane running.
demo: venv train-venv
	@$(BIN)/python tools/demo.py $(DEMO)

# The pages of the web console, in src/torchyard/console/static. They need Node.js 20; everything else works without them.
console: console/node_modules/.ready
	@cd console && npm run --silent build

# For `make test`: the pages and the driver of the browser, where this machine can build and install them.
console-pages: venv
	@if ! command -v npm >/dev/null; then echo "SKIPPED building the console: it needs Node.js 20 with npm"; \
	elif ! $(MAKE) --no-print-directory console; then echo "SKIPPED the pages of the console: they could not be built"; \
	elif ! $(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/console.txt; then \
	    echo "SKIPPED the pages in a browser: pip cannot install requirements/console.txt"; fi

# Types, the size of the first screen, unit tests, and the pages in the Chromium of this machine.
console-test: console venv
	@cd console && npm run --silent test
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/console.txt
	@$(BIN)/python -m pytest -q tests/console

console/node_modules/.ready: console/package-lock.json console/package.json
	@command -v npm >/dev/null || { echo "make console needs Node.js 20 or newer with npm (https://nodejs.org)"; exit 1; }
	@cd console && npm ci --silent --no-audit --no-fund
	@touch $@

# The documentation site, in site/. The build needs no network, and a broken link fails it.
docs: $(DOCS_VENV)/.ready
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "the documentation is in site/index.html"

$(DOCS_VENV)/.ready: requirements/docs.lock
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.lock
	@touch $@

# Without mkdocs, the tests skip the site.
docs-venv:
	@$(MAKE) --no-print-directory $(DOCS_VENV)/.ready || echo "SKIPPED the documentation site: pip cannot install mkdocs"

# The page docs/reference/cli.md from the commands, and the table of fields in docs/pods.md.
reference: venv
	@$(BIN)/python tools/generate_cli_reference.py
	@$(BIN)/python tools/generate_pod_fields.py

COMPILE := uv pip compile --quiet --no-header --no-annotate --universal --python-version 3.11 --generate-hashes --no-emit-index-url

lock:
	$(COMPILE) --group dev pyproject.toml -o requirements/dev.lock
	$(COMPILE) --group docs --no-sources -o requirements/docs.lock

clean:
	rm -rf $(VENV) $(TRAIN_VENV) $(DOCS_VENV) console/node_modules src/torchyard/console/static .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* build dist site
