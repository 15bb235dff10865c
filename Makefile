# make run    sets everything up and opens the Lab
# make test   sets everything up, the browser included, and runs all tests
# make check  format, lint, types, tests: what CI runs
# make plotly fetches Plotly's script for the page anew, for another version of the package
# make bench  how fast it is, against others, in half an hour; with ARGS=--quick in some minutes

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Where torch comes from: an index; nothing means pip's own, which serves Linux a build with CUDA; auto means the CPU
# builds where their index answers in three seconds.
TORCH_INDEX ?= auto
CPU_INDEX = https://download.pytorch.org/whl/cpu
PATIENCE = 3
# How many tests run at a time. Each worker has a server and a browser, which wait for each other half of the time.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test check lint types format browser bench lock plotly clean

run: $(VENV)/.run
	$(BIN)/streamlit run app.py

test: $(VENV)/.dev browser
	$(BIN)/python -m pytest -n $(WORKERS)

check: lint types test

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/hadolint Dockerfile

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The browser tests drive the system's Chromium, some through nginx. Where these cannot be had they fail; they are never skipped.
browser:
	@PATH="$$PATH:/usr/sbin"; wanted=; \
	command -v "$${CHROMIUM:-chromium}" >/dev/null || wanted="chromium"; \
	command -v "$${NGINX:-nginx}" >/dev/null || wanted="$$wanted nginx"; \
	[ -z "$$wanted" ] || { \
	  echo "Installing for the browser tests: $$wanted ..."; \
	  sudo=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
	  $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$wanted >/dev/null && \
	  case "$$wanted" in *nginx*) $$sudo systemctl disable --now nginx >/dev/null 2>&1 || true ;; esac; } || \
	  { echo "The browser tests need $$wanted, which could not be installed with apt-get. Install it, or name it: make test CHROMIUM=/path/to/chromium NGINX=/path/to/nginx" >&2; exit 1; }

# Every part runs, also after one that has not reached its floors.
bench: $(VENV)/.dev browser
	@failed=0; for part in backend start fifty speed; do echo; echo "benchmarks.$$part"; \
	  $(BIN)/python -m benchmarks.$$part $(ARGS) || failed=1; done; exit $$failed

lock: $(VENV)/.dev
	@{ echo "# Exact versions of everything, also of what our requirements require. Made by \`make lock\`."; \
	  $(BIN)/python -m pip freeze --all | grep -v -e '^#' -e '^pip==' | sed 's/+cpu//' | sort -f; } > constraints.txt

# Plotly's script for the page, in the version that the Python package has. Needs npm.
plotly: $(VENV)/.run
	@version=$$($(BIN)/python -c "from plotly.offline import get_plotlyjs_version; print(get_plotlyjs_version())"); \
	folder=$$(mktemp -d); \
	npm pack --silent --pack-destination $$folder plotly.js-cartesian-dist-min@$$version && \
	tar -xzf $$folder/*.tgz -C pages/ui/figure/vendor --strip-components=1 package/plotly-cartesian.min.js package/LICENSE; \
	rm -rf $$folder

clean:
	rm -rf $(VENV) static .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.venv:
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.venv requirements.txt constraints.txt
	@$(BIN)/python .ci/get_torch.py "$(TORCH_INDEX)" "$(CPU_INDEX)" $(PATIENCE)
	@echo "Installing what the Lab needs ..."
	@$(PIP) -r requirements.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	@echo "Installing what the tests need ..."
	@$(PIP) -r requirements-dev.txt
	@touch $@
