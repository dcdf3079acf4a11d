# PYTHON=... chooses the interpreter that .venv is made with; ARGS=... goes on to `chunksmith sweep`.
export PYTHON
BIN := .venv/bin
SETUP := python=$$(tools/find_python.sh) && "$$python" tools/setup.py

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev test test-docs soak sweep lint docs clean

help:
	@echo "make sweep [ARGS=...]  the demo sweep: search_spaces/cpu_demo.yaml"
	@echo "make test              all checks, then all tests"
	@echo "make test-docs         what README and docs tell to type and takes minutes; CI runs it after make test"
	@echo "make soak              the long proofs: kill -9 of each process, long property runs"
	@echo "make lint              the checks alone; ruff mends what it can"
	@echo "make docs              the documentation as pages, in build/site"
	@echo "make setup             .venv and the tiny model, nothing else"
	@echo "make clean             remove .venv, caches and build output; runs/ stays"

setup:
	@$(SETUP)

setup-dev:
	@$(SETUP) --dev

sweep: setup
	@$(BIN)/chunksmith sweep search_spaces/cpu_demo.yaml $(ARGS)

test: setup-dev
	@python3 tools/system_packages.py
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports
	$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder

test-docs: setup-dev
	@python3 tools/system_packages.py
	$(BIN)/pytest -m soak tests/docs

soak: setup-dev
	CHUNKSMITH_HYPOTHESIS=explore $(BIN)/pytest -m soak

lint: setup-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv .venv.busy build chunksmith.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
