# On a bare machine with Python 3.11 or later: `make demo`, `make test`, `make docs`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WITH_DOCS := $(VENV)/.with-docs
SHOWN := README.md CHANGELOG.md LICENSE CITATION.cff configs docs benchmarks/README.md \
	$(wildcard results/*/*.md results/*/*.csv results/*/analysis* results/*/*.svg)

.PHONY: demo test lint results docs clean

demo: $(READY)
	$(BIN)/glue-bench demo
	@echo
	@echo "The command is $(BIN)/glue-bench; after '. $(BIN)/activate' it is glue-bench:"
	@echo "  glue-bench run --checkpoint answerdotai/ModernBERT-base --task rte --seed 1 --limit 200   # any encoder of the hub"
	@echo "  glue-bench init NAME    # an experiment file to change"

test: $(READY)
	# UTF-8 in every locale: tests compare what is printed with files.
	PYTHONUTF8=1 $(BIN)/python -m pytest -n auto

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

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "glue-bench needs Python 3.11 or later; give one: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV)
