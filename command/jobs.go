package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"recibo/sandbox"
)

// jobs is the Fetcher of a demo or a sandbox, with the broker that its events go through.
type jobs struct {
	broker  *sandbox.Broker
	fetcher *sandbox.Fetcher
	expect  string // the file of ids to expect
}

// silentJobs is which jobs no event tells of.
const silentJobs = 9

const noRabbitMQ = "rabbitmq-server is not installed: Fetcher's part is left out (make setup installs it)"

// startJobs starts both in dir. It returns sandbox.ErrNoRabbitMQ where there is no broker to start.
func startJobs(ctx context.Context, dir string, log *slog.Logger) (*jobs, error) {
	broker, err := sandbox.StartBroker(ctx, sandbox.BrokerOptions{Dir: filepath.Join(dir, "rabbitmq")})
	if err != nil {
		return nil, err
	}
	fetcher, err := sandbox.StartFetcher(ctx, sandbox.FetcherOptions{AMQPURL: broker.URL(), Declare: true, Queue: "recibo.jobs", Log: log})
	if err != nil {
		broker.Close()
		return nil, err
	}
	j := &jobs{broker: broker, fetcher: fetcher, expect: filepath.Join(dir, "jobs.txt")}
	return j, os.WriteFile(j.expect, []byte("# ids of jobs to expect, one a line\n"), 0o600)
}

func (j *jobs) close() {
	j.fetcher.Close()
	j.broker.Close()
}

// config is the section fetcher of an ordinary configuration for them.
func (j *jobs) config() string {
	return fmt.Sprintf(`fetcher:
  amqp:
    urls: [%s]
  url: %s
  external_hmac_key: [%s]
  storage_key: [%s]
  objects:
    endpoint: %s
    bucket: %s
    access_key: %s
    secret_key: %s
  jobs_file: ./jobs.txt
`, j.broker.URL(), j.fetcher.URL(), j.fetcher.ExternalKeyHex(), j.fetcher.StorageKeyHex(),
		j.fetcher.ObjectsURL(), j.fetcher.Bucket(), j.fetcher.AccessKey(), j.fetcher.SecretKey())
}

// play takes jobs to their ends and has those expected that no event tells of.
func (j *jobs) play(ctx context.Context, sc sandbox.JobScenario) error {
	err := j.fetcher.Play(ctx, sc)
	if err != nil || len(sc.Silent) == 0 {
		return err
	}
	list, err := os.OpenFile(j.expect, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = list.WriteString(strings.Join(sc.Silent, "\n") + "\n")
	return errors.Join(err, list.Close())
}
