# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export OMP_NUM_THREADS = 1
unexport PYTHONDONTWRITEBYTECODE  # with it, every process would compile torch anew

.PHONY: demo test quick everywhere study lint clean
demo: $(VENV)/demo.done
	rm -rf runs/demo
	$(BIN)/gossamer train --task digits --workers 8 --algorithm choco --compressor topk:0.01 --epochs 30 --out runs/demo
	$(BIN)/gossamer report runs/demo

# One process more than cores: many tests wait for a network.
PYTEST = $(BIN)/python -m pytest --numprocesses $(shell expr $$(nproc) + 1) --dist worksteal
test: lint
	$(PYTEST)

# Within a minute: no processes, no root, no browser.
quick: $(VENV)/test.done
	$(PYTEST) --quick

# As test, and then as on other processors, with more threads and on a busy machine: an hour.
everywhere: lint
	$(BIN)/python -m tests.everywhere

study: $(VENV)/test.done
	$(BIN)/python -m pytest -m study

lint: $(VENV)/test.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Not compiled: most files are never imported, and compiling all takes as long as the demo.
# torch first and alone: a request by another package could otherwise choose a different build.
$(VENV)/torch.done: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch
	@touch $@

$(VENV)/%.done: $(VENV)/torch.done pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[$*]"
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
