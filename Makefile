# Each target is one line that works without make as well.
.PHONY: run setup test lint fmt torture bench bench-smoke ci

run: ## serve on 127.0.0.1:50051
	cargo run --release -- serve

setup: ## install what the tests need beside Rust
	.ci/setup

test: ## install what is missing, then run every test
	.ci/run setup test

lint:
	.ci/run lint

fmt:
	cargo fmt

torture: ## the long forms: many more rounds, seeds and tasks
	.ci/setup
	A2AD_TORTURE=1 cargo test --test it

bench: ## what it costs beside the limit, in turn with the floor and the driver
	cargo bench --bench load -- quick

bench-smoke: ## the same, once and too short to tell anything: it still works
	cargo bench --profile dev --bench load -- smoke

ci:
	.ci/run
