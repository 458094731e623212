# Every check of the project. PYTHON is a Python with edgeinfer's extras test and dev installed.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
BIN := $(dir $(shell command -v $(PYTHON)))
C_FILES := $(shell find edgeinfer/csrc tests/csrc -name '*.[ch]' 2>/dev/null)

.PHONY: all check test asan isa soak proof bench build clean

all: check test

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(BIN)lint-imports
	$(BIN)clang-format --dry-run -Werror $(C_FILES)

test:
	$(PYTHON) -m pytest -n auto --dist loadfile

# The C tests under the address and undefined-behaviour sanitizers.
asan:
	$(PYTHON) tools/run_c_tests.py --sanitize

# Kernel tests and C tests at every ISA: this CPU's, NEON under qemu, AVX-VNNI and AVX-512 emulated; and
# older CPUs under qemu, each of which must get the level it has.
isa:
	$(PYTHON) tools/run_c_tests.py --every-isa --aarch64 --old-cpus --kernel-tests

# One engine disturbed for ten minutes by threads, tasks, cancels and deadlines; 50 quantizers killed.
soak:
	$(PYTHON) -m tests.engine.soak --seconds 600
	$(PYTHON) -m tests.quantizing.kills --kills 50

# Everything a release claims, from a clean tree.
proof:
	EDGEINFER_REQUIRE_NATIVE=1 .ci/run

bench:
	$(PYTHON) -m edgeinfer.cli bench smollm2 --json

build:
	$(PYTHON) -m build

clean:
	rm -rf build dist *.egg-info
	find edgeinfer -name '*.so' -delete
