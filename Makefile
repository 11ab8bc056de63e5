# On a bare machine with Python 3.11 or later: `make demo`, `make test`, `make docs`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/.light
READY := $(VENV)/.ready
LOWEST := .venv-lowest
WITH_DOCS := $(VENV)/.with-docs
SHOWN := README.md CONTRIBUTING.md CHANGELOG.md LICENSE CITATION.cff configs docs benchmarks/README.md \
	$(wildcard results/*/*.md results/*/*.csv results/*/analysis* results/*/*.svg)

.PHONY: demo test lowest lint results docs clean

demo: $(LIGHT)  # what users install, without the tools of developers
	$(BIN)/glue-bench demo
	@echo
	@echo "The command is $(BIN)/glue-bench; after '. $(BIN)/activate' it is glue-bench. Without a file it runs, too:"
	@echo "  glue-bench run --checkpoint answerdotai/ModernBERT-base --task rte --seed 1 --limit 200   # any encoder of the hub"

test: $(READY)
	# UTF-8 in every locale: tests compare what is printed with files.
	PYTHONUTF8=1 $(BIN)/python -m pytest -n auto --dist worksteal

lowest: $(LOWEST)/.ready  # the same with the lowest versions, but for tests of bits and bytes, which other versions change
	PYTHONUTF8=1 $(LOWEST)/bin/python -m pytest -n auto --dist worksteal -m 'not slow and not exact'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

results: $(READY)  # writes the tables and figures of results/ again, and fails if a byte differs
	$(BIN)/python benchmarks/results.py
	git diff --exit-code -- results

docs: $(WITH_DOCS)  # build/site/index.html
	rm -rf build/pages && mkdir -p build/pages
	tar chf - $(SHOWN) | tar xf - -C build/pages
	$(BIN)/python -m typer glue_bench.cli utils docs --name glue-bench --title Commands \
		--output build/pages/docs/reference/commands.md
	$(BIN)/mkdocs build --strict

$(WITH_DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $(WITH_DOCS)

$(READY): $(LIGHT)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

$(LIGHT): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "glue-bench needs Python 3.11 or later; give one: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installs glue-bench and torch into $(VENV): some minutes, 1.8 GB (torch with CUDA: several GB more)."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --editable .
	touch $(LIGHT)

$(LOWEST)/.ready: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints-lowest.txt --editable '.[test,track]'
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST)
