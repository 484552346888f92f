# The commands of the README. Each sets itself up on a fresh machine: it needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV ?= .venv
TRAIN_VENV ?= .venv-train
BIN := $(VENV)/bin
TESTS ?= tests
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

test: check
	$(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

lock:
	uv pip compile --quiet --no-header --no-annotate --group dev --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url pyproject.toml -o requirements/dev.lock

clean:
	rm -rf $(VENV) $(TRAIN_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
