# Everything that is built or cached lies outside the checkout: COPPICE_CACHE, by default ~/.cache/coppice.
COPPICE_CACHE ?= $(HOME)/.cache/coppice
export COPPICE_CACHE
export CARGO_TARGET_DIR ?= $(COPPICE_CACHE)/target
export RUST_BACKTRACE ?= 1
# How xtask is run: built by itself, so that lints do not wait for a build of the tests.
XTASK ?= cargo run -q --locked -p xtask --

.DEFAULT_GOAL := help
.PHONY: help build demo test fuzz lint fmt generate check tools image campaign bench bench-memory clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

prerequisites:
	@./hack/prerequisites.sh

build: prerequisites ## Build coppice, coppice-operator and coppice-access into target/release
	# One at a time: together, the features that the command line needs would be in the others, too.
	cargo build --release --locked -p coppice-operator
	cargo build --release --locked -p coppice-access
	cargo build --release --locked -p coppice-cli
	@mkdir -p target/release
	@cp "$(CARGO_TARGET_DIR)/release/coppice-operator" "$(CARGO_TARGET_DIR)/release/coppice-access" "$(CARGO_TARGET_DIR)/release/coppice" "$(CARGO_TARGET_DIR)/release/kubectl-coppice" target/release/
	@echo "built target/release/coppice-operator, coppice-access, coppice and kubectl-coppice"

demo: ## Run the examples on a control plane of its own (without Go: in memory) and show what happens to each namespace
	@./hack/prerequisites.sh without-go
	@echo "building (the first time takes 13 to 24 minutes on two cores) ..."
	cargo build --locked --workspace --bins
	"$(CARGO_TARGET_DIR)/debug/coppice-demo"

test: prerequisites ## Run every test
	./hack/test.sh

fuzz: ## Fuzz what is read of objects, for FUZZ_SECONDS (300); needs a nightly toolchain and cargo-fuzz
	@./hack/fuzz.sh

lint: prerequisites ## Check format, lints, licences, architecture and generated files
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(XTASK) check
	./hack/deny.sh

fmt: ## Format the code
	cargo fmt --all

generate: prerequisites ## Write CRDs, manifests, chart parts and the CLI reference
	$(XTASK) generate

tools: prerequisites ## Build the control plane's binaries, promtool, the mail server, Gardener's API server and Cluster API's kinds into the cache
	cargo run -q --locked -p coppice-plane -- build
	cargo run -q --locked -p coppice-plane -- build --promtool
	cargo run -q --locked -p coppice-plane -- build --mail-server
	cargo run -q --locked -p coppice-plane -- build --gardener
	cargo run -q --locked -p coppice-plane -- build --cluster-api

image: ## Build the images of the operator, of coppice-access and of the command line
	docker build -t coppice-operator:dev .
	docker build -f Dockerfile.access -t coppice-access:dev .
	docker build -f Dockerfile.cli -t coppice-cli:dev .

campaign: prerequisites ## Simulate 300,000 runs in which things go wrong (CAMPAIGN_SEEDS=N for another number)
	cargo run --profile sim --locked -p coppice-campaign -- exhaustive
	cargo run --profile sim --locked -p coppice-campaign -- exhaustive --apart --suite trees
	cargo run --profile sim --locked -p coppice-campaign -- exhaustive --apart --suite access
	cargo run --profile sim --locked -p coppice-campaign -- random --first 1000000 --seeds $(or $(CAMPAIGN_SEEDS),300000)

bench: prerequisites ## Measure speed, memory and failover beside a Go peer, into docs/benchmarks (half an hour once built; BENCH="--help")
	cargo build --release --locked -p coppice-operator
	cargo build --release --locked -p coppice-bench
	"$(CARGO_TARGET_DIR)/release/coppice-bench" $(BENCH)

bench-memory: prerequisites ## Measure the operator's memory with 10,000 namespaces and 50,000 pods (about 8 minutes once built; BENCH="--governed --pods 100000" with cluster managers)
	cargo build --release --locked -p coppice-operator
	cargo build --locked -p coppice-tests --bin coppice-scale
	"$(CARGO_TARGET_DIR)/debug/coppice-scale" --operator "$(CARGO_TARGET_DIR)/release/coppice-operator" $(BENCH)

clean: ## Remove what was built (the cache outside the checkout, too)
	rm -rf target "$(CARGO_TARGET_DIR)"
