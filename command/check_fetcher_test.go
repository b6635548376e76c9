package command

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"recibo/fetcher"
	"recibo/rest"
	"recibo/setting"
)

// TestCheckNamesTLSWhereThatIsTheTrouble has a server that speaks no TLS where TLS is configured.
func TestCheckNamesTLSWhereThatIsTheTrouble(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	address := strings.TrimPrefix(plain.URL, "http://")
	key := setting.NewSecret(strings.Repeat("0a", 32))
	amqp := fetcher.DefaultAMQPConfig()
	amqp.URLs = []string{"amqps://" + address}
	c := fetcher.DefaultConfig()
	c.AMQP, c.ExternalHMACKey, c.StorageKey = &amqp, []setting.Secret{key}, []setting.Secret{key}
	c.Objects = fetcher.ObjectsConfig{Endpoint: "https://" + address, Bucket: "results", Region: "us-east-1", AccessKey: key, SecretKey: key}
	f, err := fetcher.New(rest.DefaultConfig(), c, rest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	for want, got := range map[string]checked{
		"look at fetcher.amqp.tls, and at the certificate of the broker":   checkQueue(t.Context(), amqp, f),
		"look at fetcher.objects.tls, and at the certificate of the store": checkObjects(t.Context(), f, 0, fetcher.Wanted{}),
	} {
		if got.Verdict != bad || got.Remedy != want {
			t.Errorf("%+v, want the remedy %q", got, want)
		}
	}
}
