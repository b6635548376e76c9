package fetcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"recibo/rest"
	"recibo/setting"
)

// readBuffer is that of a connection, in bytes; what is read in larger pieces, as results are, goes around it.
const readBuffer = 64 << 10

// objects is a bucket that results are read from.
type objects struct {
	gate      *rest.Gate
	s3        minio.Core
	transport *rest.Transport
	config    ObjectsConfig
	keys      *credentials.Credentials
	idle      time.Duration
	read      atomic.Pointer[string] // the key of an object that could be read
}

type proxyFunc = func(*http.Request) (*url.URL, error)

// newObjects returns the bucket of a source. Errors begin with the key, without that of the section.
func newObjects(c ObjectsConfig, rc rest.Config, proxy proxyFunc, gate *rest.Gate) (*objects, error) {
	for key, value := range map[string]string{"endpoint": c.Endpoint, "bucket": c.Bucket} {
		if value == "" {
			return nil, fmt.Errorf("%s: missing", key)
		}
	}
	if err := errors.Join(c.check()...); err != nil {
		return nil, err
	}
	address, err := c.address()
	if err != nil {
		return nil, err
	}
	material, err := setting.NewMaterial(c.TLS, rc.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	o := &objects{
		gate: gate, config: c, keys: accessKeys(c), idle: or(rc.IdleTimeout, rest.DefaultConfig().IdleTimeout),
		transport: rest.NewTransport(material, rest.TransportOptions{
			Proxy: proxy, HeaderTimeout: rc.HeaderTimeout, ReadBuffer: readBuffer, HTTP1: true,
		}),
	}
	lookup := minio.BucketLookupAuto
	if c.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(address.Host, &minio.Options{
		Creds: o.keys, Secure: address.Scheme == "https", Transport: o.transport, Region: c.Region, BucketLookup: lookup,
		MaxRetries: 1, // none: what is tried again, and when, is decided where nobody is kept waiting by it
	})
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	o.s3 = minio.Core{Client: client}
	return o, nil
}

// size asks how large an object is, in bytes. A bucket that is missing looks like a missing object at first, and a wrong
// access key like an object that is not ours: only the answer to a GET has a body that tells.
func (o *objects) size(ctx context.Context, key string) (int64, error) {
	if err := o.authorised(); err != nil {
		return 0, err
	}
	info, err := o.s3.StatObject(ctx, o.config.Bucket, key, minio.StatObjectOptions{})
	if err == nil {
		return info.Size, nil
	}
	if e := o.classify(ctx, err); e.Kind != Missing && !e.denied {
		return 0, err
	}
	body, err := o.get(ctx, key, -1)
	if err != nil {
		return 0, err
	}
	_ = body.Close()
	return 0, &ResultError{Kind: Broken, Err: errors.New("the object appeared while it was looked for")}
}

// ofOne says that it is one object's trouble which looks like the store's, where another can be read. Before any was, a
// refusal of one may be either: stores refuse whoever may not list the bucket an object that is not there.
func (o *objects) ofOne(ctx context.Context, key string, e *ResultError) *ResultError {
	switch {
	case !e.Service():
	case o.readsOthers(ctx, key):
		kind := Broken
		if e.Kind == Auth {
			kind = Missing
		}
		return &ResultError{Kind: kind, Err: fmt.Errorf("%w; others can be read", e.Err)}
	case e.denied:
		return &ResultError{Kind: Denied, Err: e.Err}
	}
	return e
}

// readsOthers reports whether an object that was read before can still be read, so that a refusal is about this one.
func (o *objects) readsOthers(ctx context.Context, but string) bool {
	known := o.read.Load()
	if known == nil || *known == but {
		return false
	}
	_, err := o.s3.StatObject(ctx, o.config.Bucket, *known, minio.StatObjectOptions{})
	return err == nil
}

// get opens an object whose size was asked for; a size of -1 is any.
func (o *objects) get(ctx context.Context, key string, size int64) (io.ReadCloser, error) {
	inner, cancel := context.WithCancelCause(ctx)
	body, info, _, err := o.s3.GetObject(inner, o.config.Bucket, key, minio.GetObjectOptions{})
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if size >= 0 && info.Size != size {
		cancel(nil)
		_ = body.Close()
		return nil, &ResultError{Kind: Broken, Err: fmt.Errorf("the object had %d bytes and has %d now", size, info.Size)}
	}
	o.read.Store(&key)
	return rest.Watch(body, cancel, o.idle), nil
}

// authorised says that there is no access key, before a request goes out without one and is refused for no visible reason.
func (o *objects) authorised() error {
	value, err := o.keys.GetWithContext(nil)
	if err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return &ResultError{Kind: Auth, Err: errors.New("no access key in fetcher.objects, AWS_ACCESS_KEY_ID or MINIO_ROOT_USER")}
	}
	return nil
}

// accessKeys are the configured ones, or those of the environment.
func accessKeys(c ObjectsConfig) *credentials.Credentials {
	if c.AccessKey.IsSet() {
		return credentials.New(&configured{access: c.AccessKey, secret: c.SecretKey})
	}
	return credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.EnvMinio{}})
}

// configured gives the access key as its files have it now.
type configured struct {
	access, secret setting.Secret
	given          credentials.Value
}

// Retrieve implements credentials.Provider.
func (c *configured) Retrieve() (credentials.Value, error) {
	c.given = c.now()
	return c.given, nil
}

// RetrieveWithCredContext implements credentials.Provider.
func (c *configured) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return c.Retrieve()
}

// IsExpired implements credentials.Provider.
func (c *configured) IsExpired() bool { return c.given != c.now() }

func (c *configured) now() credentials.Value {
	return credentials.Value{AccessKeyID: c.access.Reveal(), SecretAccessKey: c.secret.Reveal(), SignerType: credentials.SignatureV4}
}

// classify gives an error of the S3 client its kind. Only an object that is missing is its own trouble; a store that
// answers anything else would answer so for every object.
func (o *objects) classify(ctx context.Context, err error) *ResultError {
	var own *ResultError
	if errors.As(err, &own) {
		return own
	}
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) || answer.StatusCode == 0 && answer.Code == "" {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return &ResultError{Kind: Unreachable, Err: o.harmless(err), badTLS: rest.KindOf(err) == rest.BadTLS}
	}
	e := &ResultError{Err: o.harmless(fmt.Errorf("%d %s: %s", answer.StatusCode, answer.Code, answer.Error()))}
	e.Kind, e.denied = kindOf(answer.Code, answer.StatusCode), answer.Code == "AccessDenied"
	return e
}

// kindOf reads a refusal. The codes that are about one object come before the statuses that a store in trouble has too.
func kindOf(code string, status int) Kind {
	switch code {
	case "NoSuchKey", "NoSuchVersion", "KeyTooLongError", "InvalidObjectName", "XMinioInvalidObjectName",
		"MethodNotAllowed",   // a delete marker
		"InvalidObjectState": // archived: nobody but a person can bring it back
		return Missing
	case "NoSuchBucket":
		return Server
	}
	switch status {
	case http.StatusNotFound:
		return Missing
	case http.StatusUnauthorized, http.StatusForbidden:
		return Auth
	}
	return Server
}

// harmless makes a text of the store fit to be shown, without the access key that it may repeat (law 7), and drops the
// address that net/http puts around an error.
func (o *objects) harmless(err error) error {
	for u := (*url.Error)(nil); errors.As(err, &u); {
		err = u.Err
	}
	text := err.Error()
	value, _ := o.keys.GetWithContext(nil)
	for _, secret := range []string{value.SecretAccessKey, value.SessionToken, value.AccessKeyID} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, setting.Hidden)
		}
	}
	return errors.New(rest.Harmless(text, maxCause) + " at " + o.config.Endpoint + ", bucket " + o.config.Bucket)
}
