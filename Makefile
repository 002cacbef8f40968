# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export OMP_NUM_THREADS = 1
unexport PYTHONDONTWRITEBYTECODE  # with it, every process would compile torch anew

.PHONY: demo test test-oldest dist docs quick everywhere study soak tables lint clean
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

# With the oldest versions that pyproject.toml promises, in an environment of their own (5 GB, one minute).
# networkx 3.1 warns that there is no pandas, which nobody asked for.
OLDEST = $(VENV)-oldest/bin/python -m pytest --numprocesses $(shell expr $$(nproc) + 1) --dist worksteal \
	-W "ignore:pandas not found:ImportWarning"
test-oldest: $(VENV)-oldest/test.done
	$(OLDEST) --quick
	$(OLDEST) tests/distributed

$(VENV)-oldest/test.done: constraints-oldest.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --no-compile --constraint constraints-oldest.txt \
		--editable ".[demo,tensorboard,mesh]" hypothesis pytest pytest-timeout pytest-xdist scipy selenium setuptools
	@touch $@

# A wheel and an sdist in dist/, each installed in a new environment and used from there.
dist: $(VENV)/test.done
	$(BIN)/python -m tests.packages

# The site, in build/docs: a link, a name or a formula that leads nowhere is an error, and so is a page that
# would load something from the internet. Made anew each time, so that nothing is left of removed pages.
docs: $(VENV)/docs.done
	rm -rf build/docs build/doctrees
	$(BIN)/sphinx-build -W -n --keep-going --quiet -d build/doctrees docs build/docs

# The tables of docs that follow from the classes: after adding an algorithm, a compressor or a topology.
tables: $(VENV)/test.done
	$(BIN)/python -m benchmarks.catalogue

study: $(VENV)/test.done
	$(BIN)/python -m pytest -m study

# What a mesh survives, in four hours on two cores: members that are killed and frozen for so many minutes, a
# hundred thousand schedules of faults on a simulated network, a million hostile frames; as root, also what the
# lab can do to links, machines and newcomers. `make soak MINUTES=10` for less of the first.
MINUTES = 130
soak: $(VENV)/test.done
	$(BIN)/python -m benchmarks.mesh_soak --minutes $(MINUTES)
	$(BIN)/python -m benchmarks.rehearsals --schedules 100000 --jobs $(shell nproc)
	$(BIN)/python -m benchmarks.hostile_frames --frames 1000000 --jobs $(shell nproc)
	test $$(id -u) != 0 || $(BIN)/python -m benchmarks.mesh_faults --dry
	test $$(id -u) != 0 || $(BIN)/python -m benchmarks.mesh_joiners --dry

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
	rm -rf $(VENV) $(VENV)-oldest build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
