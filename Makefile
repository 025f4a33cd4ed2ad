# Each target makes what it needs, from python3, a C++ compiler and pip. Nothing is installed outside this directory.
#
#   make demo       what the library does, in half a minute; draws pendulum.png. Takes the wheel of a release, if this
#                   is the checkout of one, and builds otherwise
#   make test       all tests, against the package as users install it
#   make test-fast  those that take no time, without comparisons with other libraries and without benchmarks
#   make bench-test the tests of the benchmarks, with the libraries that bench-cpp compares with
#   make bench      speed against other libraries; writes a table and docs/images/benchmark.png
#   make bench-cpp  speed of second derivatives against Pinocchio's C++ and CasADi's, compiled here first
#   make lint       ruff, mypy --strict, clang-format, direction of includes and imports, line lengths, links, versions
#   make docs       the manual, in docs/_build/html
#   make sanitize   the core's tests under the address and undefined-behaviour sanitizers
#   make cross      whether the core compiles for arm64, macOS and Windows, by the Clang of the package ziglang
#   make dist       rehearses a release: source distribution and wheel in dist, with checks
#   make test-levels  test-fast with each core that the wheel in dist has
#   make clean      remove everything that these made

PYTHON ?= python3
PIP_FLAGS ?= --quiet --disable-pip-version-check
CXX ?= g++

venv := .venv
bin := $(venv)/bin
wheels := $(venv)/wheels
sources := pyproject.toml CMakeLists.txt $(shell find src core -type f -not -name '*.pyc' -not -name '*.so')
cpp := $(wildcard core/*/*.hpp core/*/*.cpp benchmarks/cpp/*)

# The packages of an extra, without torsor.
empty :=
space := $(empty) $(empty)
requirements = $(shell $(PYTHON) -c "import re; text = open('pyproject.toml').read(); \
  print(*re.findall(r'\"[^\"]+\"', re.search(r'^$(1) = \[(.*)\]', text, re.M).group(1)))")

.PHONY: demo test test-fast bench bench-cpp bench-test lint docs sanitize cross dist test-levels clean
.DELETE_ON_ERROR:

demo: | $(bin)/python
	@if [ ! -e $(venv)/package ] && $(bin)/python tools/release.py fetch $(wheels); \
	then $(bin)/pip install $(PIP_FLAGS) $(wheels)/*.whl; \
	else $(MAKE) --no-print-directory $(venv)/package; fi
	@echo "installing what the demo compares with and draws with"
	@$(call try_extra,demo) || echo "(could not install all that the demo can show; it goes on without)"
	@$(bin)/python -m torsor.demo pendulum.png

# Tests run in as many processes as there are cores, so that none of them needs more than one for linear algebra.
pytest := OPENBLAS_NUM_THREADS=1 $(bin)/pytest -q -n auto --dist worksteal

test: $(venv)/extra-test
	$(pytest) tests benchmarks/tests/test_run.py

test-fast: $(venv)/extra-test
	$(pytest) -m "not slow" --ignore=tests/cross tests

bench: $(venv)/extra-bench
	OPENBLAS_NUM_THREADS=1 $(bin)/python benchmarks/run.py

bench-cpp: $(venv)/extra-bench-cpp
	CXX="$(CXX)" $(bin)/python benchmarks/second_order.py

bench-test: $(venv)/extra-test $(venv)/extra-bench-cpp
	OPENBLAS_NUM_THREADS=1 CXX="$(CXX)" $(bin)/pytest -q benchmarks/tests

lint: $(venv)/extra-lint
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy --strict src/torsor
	$(bin)/clang-format --dry-run -Werror $(cpp)
	$(bin)/python tools/layers.py
	$(bin)/python tools/text.py

docs: $(venv)/extra-docs
	$(bin)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# CPython leaks by design, so leaks are not looked for. libstdc++ comes along because the address sanitizer has to
# find __cxa_throw when it starts, before the extension brings it.
runtimes := libasan.so libubsan.so libstdc++.so
sanitize: .venv-sanitize/package
	LD_PRELOAD="$(foreach lib,$(runtimes),$(shell $(CXX) -print-file-name=$(lib)))" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	.venv-sanitize/bin/pytest -q -p no:cacheprovider -m "not slow" tests \
	  --ignore=tests/cross --ignore=tests/test_examples.py --ignore=tests/test_docs_examples.py

cross: | $(bin)/python
	$(bin)/pip install $(PIP_FLAGS) numpy $(call requirements,cross)
	$(bin)/python tools/cross.py --code

# A wheel with a core for each level of the CPU; on arm64 and others, with one for the baseline.
machine := $(shell uname -m)
levels := $(if $(filter x86_64 amd64,$(machine)),x86-64-v2 x86-64-v3 x86-64-v4)
level_flags = $(if $(levels),-C "cmake.define.TORSOR_LEVELS=$(subst $(space),;,$(levels))",-C cmake.define.TORSOR_ARCH=)
dist: | .venv-dist/bin/python
	rm -rf dist
	.venv-dist/bin/pip install $(PIP_FLAGS) $(call requirements,dist)
	.venv-dist/bin/python -m build --sdist --outdir dist .
	@.venv-dist/bin/python tools/progress.py .venv-dist/bin/pip wheel $(build_flags) --no-deps --wheel-dir dist \
	  $(level_flags) .
	.venv-dist/bin/twine check --strict dist/*
	.venv-dist/bin/check-wheel-contents dist/*.whl
	.venv-dist/bin/python tools/release.py try dist
	.venv-dist/bin/pip install $(PIP_FLAGS) --force-reinstall --no-deps dist/*.whl
	.venv-dist/bin/pip install $(PIP_FLAGS) "$$(echo dist/*.whl)[test]"
	.venv-dist/bin/python tools/levels.py --allow-one

test-levels:
	for level in $(levels); do \
	  TORSOR_ISA=$$level OPENBLAS_NUM_THREADS=1 .venv-dist/bin/pytest -q -n auto --dist worksteal -m "not slow" \
	  --ignore=tests/cross tests || exit 1; done

clean:
	rm -rf $(venv) .venv-sanitize .venv-dist build dist docs/_build docs/gallery docs/tutorials pendulum.png
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks docs -name __pycache__ -prune -exec rm -rf {} +

# The package is built once per change of its sources, as a wheel; extras are added to the same wheel. Compiling takes
# minutes: tools/progress.py shows the files that are compiled, and all of the output if the build fails.
build_flags = --verbose $(filter-out -q --quiet,$(PIP_FLAGS))
$(venv)/package: $(sources) | $(bin)/python
	rm -rf $(wheels)
	@$(bin)/python tools/progress.py $(bin)/pip wheel $(build_flags) --no-deps --wheel-dir $(wheels) .
	$(bin)/pip install $(PIP_FLAGS) --force-reinstall --no-deps $(wheels)/*.whl
	$(bin)/pip install $(PIP_FLAGS) $(wheels)/*.whl
	@touch $@

try_extra = $(bin)/pip install $(PIP_FLAGS) "$$(echo $(wheels)/*.whl)[$(1)]"
$(venv)/extra-%: $(venv)/package
	$(call try_extra,$*)
	@touch $@

.venv-sanitize/package: $(sources) | .venv-sanitize/bin/python
	@.venv-sanitize/bin/python tools/progress.py .venv-sanitize/bin/pip install $(build_flags) ".[test]" \
	  -C build-dir=build/sanitize -C cmake.define.TORSOR_SANITIZE=ON
	@touch $@

%/bin/python:
	$(PYTHON) -m venv $*
