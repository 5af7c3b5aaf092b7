# SPDX-License-Identifier: Apache-2.0
#
# Targets with a comment after ## are shown by `make help`. Nothing here is needed to build: `go build ./cmd/weir` is enough.

SHELL := /bin/bash -o pipefail
GO ?= go
FUZZTIME ?= 10m
.DEFAULT_GOAL := help
.NOTPARALLEL:

TOOLS = $(shell hack/tools/build -p)
# What has no goroutines of its own to race, and takes long: the protocol's schedules are one deterministic loop each, charts are rendered,
# the tree is read. Where disks of metadata fail at random, Pebble does not stand the detector: engine and replica run both ways.
PLAIN = ./replica/protocol ./engine ./replica ./charts/... ./test/layout ./test/apiserver ./hack/...
UNIT = $$($(GO) list ./... | grep -v -e /test/ -e /charts -e /hack -e /replica/protocol)
# What `make build` and hack/release compile with: so tests, demonstrations and what they build share what the compiler made. The race
# detector alone needs cgo.
SAME = CGO_ENABLED=0 GOFLAGS=-trimpath
say = @printf '\n== %s\n' "$(1)"

.PHONY: help images release kube-tools zfs demo demo-bare demo-exchange test verify generate bench fuzz soak build clean mutations deps tools modules fit-bare fit-clusters

help: ## show this list
	@printf 'Weir: a POSIX file system that lives at several sites at once.\n\nUsage: make TARGET\n\n'
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | sort | \
		while IFS=$$'\t' read -r name text; do printf '  %-13s %s\n' "$$name" "$$text"; done
	@printf '\ndemo, demo-exchange, demo-bare, test and soak need root on Debian 12 (amd64); they install the packages that they need,\nand say within seconds what this machine lacks.\n'

demo: fit-clusters modules tools kube-tools zfs build ## three Kubernetes clusters share a volume, and one is lost (KEEP=1 leaves them running)
	$(call say,demonstration)
	@KEEP=$(KEEP) $(SAME) $(GO) run ./test/e2e/demo

demo-bare: fit-bare modules tools build ## the same without Kubernetes: three sites, machines that mount (KEEP=1 leaves them running)
	$(call say,demonstration without Kubernetes)
	@KEEP=$(KEEP) $(SAME) $(GO) run ./test/e2e/demobare

demo-exchange: fit-clusters modules tools kube-tools build ## three organizations lend each other storage (KEEP=1 leaves it running)
	$(call say,demonstration of the exchange)
	@KEEP=$(KEEP) $(SAME) $(GO) run ./test/e2e/demoexchange

# The clusters with Weir installed take nearly as long as everything else, and wait half of that time: so two halves run at once, clusters and the rest.
CLUSTERS = ./test/e2e/installed
# Those that compare rates run at the end, alone; the others wait much, two at once.
ALONE = ./test/e2e/rates
OTHERS = $$($(GO) list ./test/e2e/... ./test/format ./test/scale | grep -v -e /e2e/installed -e /e2e/rates)

test: fit-clusters modules tools kube-tools zfs build ## run all tests but the long form of soak: clusters, and beside them units with the race detector and the rest
	$(call say,clusters: their tests run beside all that follows$(comma) and are printed as they end)
	@export $(SAME); $(GO) test -count=1 -p 1 -timeout 40m $(CLUSTERS) & clusters=$$!; trap 'pkill -TERM -P $$clusters; wait' INT TERM; \
	printf '\n== unit tests: with the race detector where there is something to race; packages that did not change are cached\n'; \
	$(GO) test -p 2 -timeout 40m $(PLAIN); plain=$$?; CGO_ENABLED=1 $(GO) test -race -p 2 -timeout 40m -ldflags=-w $(UNIT); units=$$?; \
	printf '\n== end-to-end tests: sites, links, and kernel NFS clients on this machine\n'; \
	$(GO) test -count=1 -p 2 -timeout 40m $(OTHERS); rest=$$?; wait $$clusters; clusters=$$?; trap - INT TERM; \
	printf '\n== tests that compare rates, alone\n'; \
	$(GO) test -count=1 -timeout 40m $(ALONE) && [ $$clusters = 0 ] && [ $$plain = 0 ] && [ $$units = 0 ] && [ $$rest = 0 ]

verify: modules ## check format, lint, generated code, modules and the layout of the tree
	@GO=$(GO) hack/verify

generate: modules ## write the Go code of *.proto, and of api/ deep copies, CRDs and reference
	@hack/tools/build proto api
	@PATH="$(TOOLS):$$PATH" buf generate
	@$(TOOLS)/controller-gen object:headerFile=/dev/null crd:crdVersions=v1 paths=./api/... output:crd:dir=config/crd
	@$(GO) run ./hack/crds
	@$(GO) run ./hack/apidocs
	@$(GO) run ./hack/metricsdocs

bench: modules ## run the benchmarks, briefly
	@$(GO) test -run '^$$' -bench . -benchtime 300ms -p 1 \
		$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)

soak: fit-clusters modules tools kube-tools zfs build ## run long random schedules, then the end-to-end tests in their long form: outages of ten minutes, ten thousand volumes, the clusters alone (hours)
	$(call say,random schedules of the protocol)
	@$(SAME) $(GO) test -count=1 -timeout 4h ./replica/protocol -seeds 100000
	$(call say,histories of clients under faults)
	@$(SAME) $(GO) test -count=1 -timeout 1h ./gateway -run TestStrongIsLinearizable -histories 2000
	$(call say,losses of power and other faults with fresh seeds: ten minutes each$(comma) in new processes as what died keeps memory)
	@for i in $$(seq 20); do WEIR_SOAK=1 $(SAME) $(GO) test -count=1 -v -p 1 -timeout 30m ./engine ./replica -run TestJoint -soak 30s | \
		grep -v -E '^ *(===|--- PASS)' || exit 1; done
	$(call say,a volume of a million files and one of 16 000 segments)
	@WEIR_SOAK=1 $(SAME) $(GO) test -count=1 -v -timeout 1h ./gateway ./gateway/rebuild -run "TestReopenOfManySegments|TestFirstReadOfManyFiles|TestOverwrite"
	$(call say,a directory of a million entries and 64 writers in 512 MiB$(comma) and a file of 1 TiB)
	@WEIR_SOAK=1 $(SAME) $(GO) test -count=1 -v -timeout 1h ./engine -run "TestMemory|TestSparse1TiB"
	$(call say,a volume with one small change every ten seconds of a year)
	@WEIR_SOAK=1 $(SAME) $(GO) test -count=1 -v -timeout 2h ./gateway/checkpoints -run TestManySmallChanges
	$(call say,end-to-end tests$(comma) long)
	@WEIR_SOAK=1 $(SAME) $(GO) test -count=1 -p 1 -timeout 8h ./test/e2e/... ./test/scale

zfs:
	@hack/fetch-zfs

# As hack/release compiles it, so that tests run what is released, and tests that make a release find it compiled.
build: modules ## build bin/weir
	@$(SAME) $(GO) build -o bin/ ./cmd/weir

images: ## make the container image of weir in dist/; PUSH=registry/folder pushes it there
	@$(GO) run ./hack/release -only image -push "$(PUSH)"

release: ## make programs, image, chart, CRDs, list of modules and checksums in dist/; PUSH=registry/folder pushes the image
	@$(GO) run ./hack/release -push "$(PUSH)"

mutations: ## plant known mistakes in a copy of the tree and see that a test finds each
	@$(GO) run ./hack/mutations $(MUTATION)

# Each target needs all of the machine, so one runs after another.
fuzz: modules ## fuzz every decoder of bytes from disks, stores, peers and clients for FUZZTIME=10m each (hours); FUZZ=engine/meta only those
	@GO=$(GO) hack/fuzz -t $(FUZZTIME) "$(FUZZ)"

clean: ## remove what was built here (caches live elsewhere, see hack/tools/build)
	@rm -rf bin dist

comma := ,

# What makes this machine unfit is told before anything is built.
fit-bare fit-clusters: fit-%:
	@hack/check-host facts $*
	@hack/install-deps
	@hack/fetch-guest-kernel
	@hack/check-host boot $*

modules:
	@GO=$(GO) hack/fetch-modules

deps:
	@hack/install-deps

tools:
	@hack/tools/build etcd s3

# What the tests with Kubernetes run; the first time takes about 25 minutes.
kube-tools:
	@hack/tools/build kube helm node csi provisioner prometheus
