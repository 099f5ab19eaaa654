# make demo        set everything up and transcribe a bundled clip
# make test        install what the tests need and run them
# make test-long   also the slow ones: parity with transformers, hours of audio
# make eval        score a model on a manifest of recordings
# make live        speak clips into the daemon in real time: word errors, and times beside faster-whisper
# make bench       compare with faster-whisper and whisper.cpp, write docs/bench.md
# make docs        man page and shell completions from the command line's own description, pictures of simulated NPU runs
# make kernels     compile every NPU kernel for this machine, and for the array where Peano is installed (docs/npu.md)
# make real-pyxrt  compare the simulator's pyxrt with the real one, in a Debian 13 chroot (root, network)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CLIP   := tests/data/speech/en-jfk.flac
MANIFEST ?= tests/data/speech/manifest.tsv

.PHONY: demo test test-long eval live bench docs kernels real-pyxrt check clean

demo: $(VENV)/.demo
	@$(BIN)/xdna-dictate models verify whisper-tiny.en >/dev/null 2>&1 || $(BIN)/xdna-dictate models download whisper-tiny.en
	@$(BIN)/xdna-dictate --file $(CLIP) --verbose

test: $(VENV)/.test $(VENV)/.desktop
	$(BIN)/python -m pytest -m "not long" --ignore tests/parity

test-long: $(VENV)/.test $(VENV)/.desktop $(VENV)/.parity
	$(BIN)/python -m pytest -m long --ignore tests/parity
	$(BIN)/python -m pytest tests/parity

eval: $(VENV)/.test
	$(BIN)/python tests/evaluation/score.py --manifest $(MANIFEST) $(EVAL)

live: $(VENV)/.test $(VENV)/.desktop $(VENV)/.bench
	$(BIN)/python tests/evaluation/live.py --manifest $(MANIFEST) $(LIVE)

bench: $(VENV)/.test $(VENV)/.bench
	$(BIN)/python tests/evaluation/bench.py --manifest $(MANIFEST) $(BENCH)

docs: $(VENV)/.test
	$(BIN)/python packaging/generate.py
	$(BIN)/python -m npusim gemm --columns 2 --svg docs/npu-gemm.svg >/dev/null
	$(BIN)/python -m npusim gemv --columns 2 --svg docs/npu-gemv.svg >/dev/null

kernels: $(VENV)/.test $(VENV)/.desktop
	$(BIN)/python packaging/build_kernels.py

real-pyxrt:
	sh tests/npu/real_pyxrt.sh

check: $(VENV)/.test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

$(VENV)/.venv:
	sh packaging/system-packages.sh python $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.desktop: $(VENV)/.venv
	sh packaging/system-packages.sh tests
	@touch $@

$(VENV)/.demo: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ffmpeg,test]'
	@touch $@ $(VENV)/.demo

$(VENV)/.parity $(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(patsubst .%,%,$(notdir $@))]'
	@touch $@

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
