# make demo    build and play the main job, everything embedded; installs RabbitMQ for it where that can be done
# make test    set up what the tests need, and run all of them with the race detector
# make lint    gofmt, go vet, staticcheck, govulncheck; installs what it needs into ./bin
# make bench   ratios to a limit measured in the same run
# make fuzz    every fuzz test for FUZZTIME each

GO       ?= go
BIN      := $(CURDIR)/bin
FUZZTIME ?= 20s

STATICCHECK := $(BIN)/staticcheck-0.8.2
GOVULNCHECK := $(BIN)/govulncheck-1.9.0

.PHONY: build demo test setup lint bench fuzz clean

build:
	$(GO) build -trimpath -o recibo .

# Where RabbitMQ can't be installed, the demo says so and goes without Fetcher's part.
demo: build
	@scripts/rabbitmq install || true
	./recibo demo

# strace shows the order in which files reach the disk; RabbitMQ is started by the tests that need it, on ports of its own.
setup:
	@command -v strace >/dev/null || scripts/install strace
	@scripts/rabbitmq install

test: setup
	$(GO) test -race -timeout 20m ./...

lint: $(STATICCHECK) $(GOVULNCHECK)
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...
	scripts/vulnerabilities $(GOVULNCHECK)

$(STATICCHECK):
	GOBIN=$(BIN) $(GO) install honnef.co/go/tools/cmd/staticcheck@v0.8.2
	mv $(BIN)/staticcheck $@

$(GOVULNCHECK):
	GOBIN=$(BIN) $(GO) install golang.org/x/vuln/cmd/govulncheck@v1.9.0
	mv $(BIN)/govulncheck $@

bench:
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./...

fuzz:
	scripts/fuzz $(FUZZTIME)

clean:
	rm -rf recibo bin
