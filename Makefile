PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo train-demo test lint setup

demo: setup  ## the main job on a small real model, on 2 cores in about a minute after set-up
	$(BIN)/python environments/terminal_env.py process --config scripts/demo.yaml \
		--model.path "$$($(BIN)/python scripts/fetch_model.py)"

train-demo: setup  ## GRPO on the easy tasks, evaluated before and after; within an hour on 2 cores
	$(BIN)/python scripts/train_demo.py --model "$$($(BIN)/python scripts/fetch_model.py)" --output data/train-demo

test: setup  ## what needs a model, vLLM or Docker that isn't there is skipped, with the way to get it
	$(BIN)/pytest --numprocesses 2 --dist loadgroup

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

setup: .venv/ready  ## everything into .venv

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[torch,trainers,datasets,docker,ssh,modal,dev]'
	touch $@
