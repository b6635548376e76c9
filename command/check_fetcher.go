package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/google/uuid"

	"recibo/agent"
	"recibo/config"
	"recibo/console"
	"recibo/fetcher"
	"recibo/hub"
	"recibo/rest"
	"recibo/store"
)

// checkFetcher asks everything that jobs depend on.
func (a *app) checkFetcher(ctx context.Context, c *config.Config) []checked {
	f, err := fetcher.New(c.REST, c.Fetcher, rest.Options{UserAgent: userAgent()})
	if err != nil {
		return []checked{{What: "fetcher", Verdict: bad, Detail: err.Error(), code: exitUsage}}
	}
	defer f.Close()
	var results []checked
	for _, section := range c.Fetcher.Subscriptions() {
		results = append(results, checkQueue(ctx, section, f))
	}
	delivered := a.deliveredJobs(ctx, c, f)
	for i := range f.Sources() {
		results = append(results, checkObjects(ctx, f, i, delivered[i]))
		if f.Asks(i) {
			results = append(results, checkJobs(ctx, f, i))
		}
	}
	if file := c.Fetcher.JobsFile; file != "" {
		results = append(results, checkJobsFile(file))
	}
	return results
}

func checkJobsFile(file string) checked {
	r := checked{What: "jobs file"}
	data, err := os.ReadFile(file)
	if err != nil {
		r.Verdict, r.Detail, r.Remedy = bad, err.Error(), "fetcher.jobs_file names a file of job ids, one a line"
		return r
	}
	ids, wrong := agent.ReadJobIDs(data)
	r.Detail = fmt.Sprintf("%s, %s", file, english.Plural(len(ids), "id", ""))
	if len(wrong) > 0 {
		r.Verdict = warning
		r.Detail += fmt.Sprintf("; line %d is none", wrong[0])
		if more := len(wrong) - 1; more > 0 {
			r.Detail += fmt.Sprintf(", nor are %d more", more)
		}
		r.Remedy = "one id (a UUID) a line; lines that begin with # are passed over"
	}
	return r
}

// checkQueue asks the broker.
func checkQueue(ctx context.Context, section hub.AMQPConfig, f *fetcher.Fetcher) checked {
	r := checked{What: "rabbitmq", Detail: strings.Join(section.Brokers(), ", ")}
	queue, err := hub.NewAMQP(section, hub.AMQPOptions{Normalise: f.Delivery})
	if err != nil {
		r.Verdict, r.Detail, r.code = bad, err.Error(), exitUsage
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found, err := queue.Check(ctx)
	switch {
	case err != nil:
		r.Verdict, r.Detail = bad, err.Error()
		r.Remedy = "is fetcher.amqp.urls right, is the broker there, and may this user read the queue?"
		if rest.KindOf(err) == rest.BadTLS {
			r.Remedy = "look at fetcher.amqp.tls, and at the certificate of the broker"
		}
	case found.Lost != "":
		r.Verdict, r.Detail = warning, found.Lost
		r.Remedy = fmt.Sprintf("start recibo run, or have queue %s bound to exchange %s", section.Queue, section.Exchange)
	default:
		r.Detail = found.Detail
	}
	return r
}

const (
	proveBy    = 50       // the newest delivered jobs that a key is proven by
	largeProof = 32 << 20 // bytes of a result that is not read just for that
)

// deliveredJobs finds, for each source, a result that was delivered lately, to prove keys by.
func (a *app) deliveredJobs(ctx context.Context, c *config.Config, f *fetcher.Fetcher) map[int]fetcher.Wanted {
	found := map[int]fetcher.Wanted{}
	if exists(c.Store.Path) != nil {
		return found
	}
	each := func(m json.RawMessage) error {
		r, err := decode[store.Receipt](m)
		if err != nil {
			return err
		}
		i := f.Find(r.Source, r.Tenant)
		said, err := fetcher.ParseAnnounced(r.Announced[fetcher.JobCompleted])
		if _, known := found[i]; i >= 0 && !known && err == nil && said.Result.SizeBytes <= largeProof {
			found[i] = fetcher.Wanted{JobID: r.ID, Result: *said.Result}
		}
		return nil
	}
	req := console.ListRequest{Kind: store.Job, States: []store.State{store.Delivered, store.Encrypted}, Limit: proveBy}
	// Without the ledger, which has a line of its own, there is nothing to prove keys by.
	_ = a.call(ctx, c, wish{}, console.CallList, req, console.Handlers{Item: each}, nil)
	return found
}

// checkObjects asks the object store of a source and proves the keys by a stored result, where there is one.
func checkObjects(ctx context.Context, f *fetcher.Fetcher, i int, known fetcher.Wanted) checked {
	r := checked{What: "objects", Detail: f.Store(i)}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := f.Check(ctx, i)
	var answer *fetcher.ResultError
	switch {
	case errors.As(err, &answer) && answer.Kind == fetcher.Denied && known.JobID != "":
		err = nil // it may not list the bucket; the stored result shows whether it may read
	case errors.As(err, &answer) && answer.Kind == fetcher.Denied:
		r.Verdict = warning
		r.Detail += "; it denies an object that is not there, as stores do to whoever may not list the bucket, or may read nothing"
		r.Remedy = "the first result that comes home shows that the access key may read"
		return r
	case err != nil:
		r.Verdict, r.Detail = bad, err.Error()
		r.Remedy = "look at " + f.Section(i) + ".objects: endpoint, bucket, access key and its right to read"
		if errors.As(err, &answer) && answer.BadTLS() {
			r.Remedy = "look at " + f.Section(i) + ".objects.tls, and at the certificate of the store"
		}
		return r
	}
	switch {
	case !f.CanOpen(i):
		r.Detail += "; there is no storage key, so results stay encrypted"
	case known.JobID == "":
		r.Detail += "; no result was delivered yet by which the keys could be proven"
	default:
		if err = f.Acquire(ctx, i); err == nil {
			err = f.Fetch(ctx, i, known, func([]byte, fetcher.Proof) error { return nil })
		}
		r.Detail += "; the keys open and verify the result of job " + known.JobID
	}
	switch {
	case errors.As(err, &answer) && answer.Kind == fetcher.Missing:
		r.Verdict, r.Detail = warning, f.Store(i)+"; the result of job "+known.JobID+" is not there any more, so the keys could not be proven"
		r.Remedy = "are bucket and prefix of fetcher.objects still right? otherwise the store has removed it"
	case err != nil:
		r.Verdict, r.Detail = bad, err.Error()
		r.Remedy = "are storage_key and external_hmac_key of " + f.Section(i) + " those of this Fetcher? recibo keys derives them"
	}
	return r
}

// checkJobs asks Fetcher about a job that there is not.
func checkJobs(ctx context.Context, f *fetcher.Fetcher, i int) checked {
	r := checked{What: "fetcher", Detail: f.Address(i)}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := f.AcquireJob(ctx, i)
	if err == nil {
		_, err = f.Job(ctx, i, uuid.NewString())
	}
	var refused *rest.Error
	switch {
	case err == nil, fetcher.Unknown(err):
	case errors.As(err, &refused) && refused.Kind == rest.Auth:
		r.Verdict, r.Detail = bad, err.Error()
		r.Remedy = "look at fetcher.token or fetcher.client_credentials, and at the rights they carry"
	default:
		r.Verdict, r.Detail, r.Remedy = bad, err.Error(), "is fetcher.url right, and does Fetcher run?"
	}
	return r
}
