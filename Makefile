# `make` lists the targets. Each sets up what it needs in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
# Targets whose packages are installed in an environment of their own.
BESIDE := peers libraries interop ray
# --no-compile saves time: pip would compile on one core, before anything can run.
PIP := -m pip --disable-pip-version-check install --no-compile

# Torch and the tests share the cores. Nothing needs the network after the set-up.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM := false
# The tests start many processes, which share the compiled sources.
export PYTHONDONTWRITEBYTECODE :=
# Processes of the tests. Tests of one `xdist_group` run in one of them.
TEST_PROCESSES ?= 2

.PHONY: help install demo test test-slow lint types format bench docs release $(filter-out ray,$(BESIDE)) test-ray test-next test-arm wheel wheels check-wheel clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

install: $(COMPILED)  ## set up .venv

# The kernels compile on another core while the packages are installed.
$(STAMP): requirements.txt constraints.txt setup.py
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; give one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
	  "error: Python 3.11 or newer is needed, $(PYTHON) is %d.%d; give another with make PYTHON=..." % v[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --quiet --no-deps -e . & plugin=$$!; \
	  $(BIN)/python $(PIP) -r requirements.txt && $(BIN)/python $(PIP) --no-deps allennlp==2.10.1 && wait $$plugin
	$(BIN)/python -m elmo_plugin --version
	@touch $@

# With PYTHONDONTWRITEBYTECODE, a usual line of Dockerfiles, Python would compile all sources in each process.
$(COMPILED): $(STAMP)
	-@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib elmo_plugin
	@touch $@

demo: $(STAMP)  ## train NER with and without ELMo on the sample data, and compare
	@nice -n 19 $(MAKE_COMMAND) --no-print-directory $(COMPILED) & $(BIN)/python examples/demo.py && wait

test: lint types  ## lint, types and the quick tests
	$(BIN)/python -m pytest -n $(TEST_PROCESSES)

test-slow: $(STAMP)  ## the slow tests
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup -m 'slow and not gpu and not peers and not interop'

test-arm: $(STAMP)  ## the kernels on an emulated ARM processor, bit for bit those of x86
	$(BIN)/python -m pytest -n 0 -rs -m slow tests/bilm/kernels/test_arm.py

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)  ## format the sources, fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP)  ## benchmarks
	$(BIN)/python -m benchmarks

# These environments also see the packages in .venv, so that the pinned set is not installed twice.
define BESIDE_VENV
$(BIN)/python -m venv $(@D)
$(BIN)/python -c 'import sysconfig as s; print(s.get_paths()["purelib"])' \
  > "$$($(@D)/bin/python -c 'import sysconfig as s; print(s.get_paths()["purelib"])')/run_time_set.pth"
endef

$(BESIDE:%=.venv-%/.installed): .venv-%/.installed: $(STAMP) requirements-%.txt
	$(BESIDE_VENV)
	.venv-$*/bin/python $(PIP) --no-deps -r requirements-$*.txt
	@touch $@

.venv-next/.installed: $(STAMP)
	$(BESIDE_VENV)
	$(@D)/bin/python $(PIP) --upgrade torch torchvision
	@touch $@

test-next: .venv-next/.installed  ## the quick tests on the newest PyTorch (installs it in .venv-next)
	.venv-next/bin/python -m pytest -n $(TEST_PROCESSES)

peers: .venv-peers/.installed  ## compare with allennlp-models (installs it in .venv-peers)
	.venv-peers/bin/python -m pytest -m peers

libraries: .venv-libraries/.installed  ## compare with TensorFlow, onnxruntime, sentence-transformers, transformers (installs them in .venv-libraries)
	.venv-libraries/bin/python -m pytest -m libraries tests/docs tests/test_onnx.py tests/test_sentence_transformers.py tests/test_transformers.py tests/bilm/files/bilm_tf_run

interop: .venv-interop/.installed  ## run old programs and other ELMos unchanged, and compare (installs them in .venv-interop)
	.venv-interop/bin/python -m pytest -m interop tests/interop

test-ray: .venv-ray/.installed  ## embed-corpus on Ray (installs it in .venv-ray)
	.venv-ray/bin/python -m pytest -m 'slow or not slow' tests/bilm/corpus tests/bilm/extraction/test_engine.py tests/commands/test_embed_corpus_command.py

# Needs neither torch nor AllenNLP: the reference is read from the sources.
.venv-docs/.installed: requirements-docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python $(PIP) -r requirements-docs.txt
	@touch $@

docs: .venv-docs/.installed  ## build the documentation in site/ and check it (installs MkDocs in .venv-docs)
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict
	.venv-docs/bin/python -m pytest -m site tests/docs/test_site.py
	@echo "open $(CURDIR)/site/index.html in a browser; no server is needed"

# Needs no set-up: pip builds the wheel in an environment of its own.
wheel:  ## build dist/*.whl: the core, with the configs and the C++ kernels
	rm -rf build dist
	$(firstword $(wildcard $(BIN)/python) $(PYTHON)) -m pip --disable-pip-version-check wheel --no-deps -w dist .
	rm -rf build

# manylinux in a container, macOS and Windows on themselves; without a compiler the wheel is pure Python.
wheels:  ## build dist/*.whl for others' machines of this platform (installs cibuildwheel in .venv-wheels)
	$(PYTHON) -m venv .venv-wheels
	.venv-wheels/*/python $(PIP) cibuildwheel==4.3.5
	.venv-wheels/*/python -m cibuildwheel --output-dir dist

check-wheel: wheel  ## install the wheel in a clean environment, without AllenNLP and then with it, and use it
	.ci/check_wheel

release: install  ## check everything and build the wheel (CONTRIBUTING.md, "Release")
	.ci/run
	$(MAKE) wheel

clean:  ## remove everything that make and the tools made
	rm -rf $(VENV) $(BESIDE:%=.venv-%) .venv-next .venv-docs .venv-wheels build dist site *.egg-info elmo_plugin/bilm/kernels/libelmo_kernels.* .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.git/*' -type d -prune -exec rm -rf {} +
