package hub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"recibo/setting"
)

// authority signs certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// pair returns a certificate and its key in PEM form.
func (a *authority) pair() (cert, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// startTLSHub starts a server that asks for certificates of the authority, as long as *a stays the same.
func startTLSHub(t *testing.T, a **authority) *testHub {
	t.Helper()
	h := &testHub{t: t, port: server.RANDOM_PORT, dir: t.TempDir()}
	h.change = func(o *server.Options) {
		cert, key := (*a).pair()
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 5
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: (*a).pool(), ClientAuth: tls.RequireAndVerifyClientCert}
		h.login = []nats.Option{nats.Secure(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: (*a).pool()})}
	}
	t.Cleanup(h.stop)
	h.start()
	return h
}

func TestCertificatesAreReadAnewAtEachConnection(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	h := startTLSHub(t, &a).createStream()
	cert, key := a.pair()
	c := h.config()
	c.TLS = setting.TLS{CAFile: write(t, "ca.pem", a.pem), CertFile: write(t, "cert.pem", cert), KeyFile: write(t, "key.pem", key)}
	l := &ledger{}
	n := subscribe(t, c, NATSOptions{})
	run(t, n, l.admit)
	until(t, "health", healthy(n))

	h.stop()
	a = newAuthority(t)
	h.start()
	until(t, "the refusal", func() bool { return strings.Contains(n.Health().Detail, "certificate") })
	cert, key = a.pair()
	replace(t, c.TLS.CAFile, a.pem)
	replace(t, c.TLS.CertFile, cert)
	replace(t, c.TLS.KeyFile, key)
	h.publish("a")
	until(t, "the event", l.has("a"))
}

func TestPlainServerIsRefusedWhenTLSIsConfigured(t *testing.T) {
	t.Parallel()
	h := startHub(t, nil).createStream()
	c := h.config()
	c.TLS.CAFile = write(t, "ca.pem", newAuthority(t).pem)
	n := subscribe(t, c, NATSOptions{})
	run(t, n, (&ledger{}).admit)
	until(t, "the refusal", func() bool { return strings.Contains(n.Health().Detail, "secure connection not available") })
}

func TestUnreadableTLSFilesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	c := DefaultNATSConfig()
	c.TLS.CAFile = write(t, "ca.pem", "nothing")
	if _, err := NewNATS(c, normaliser(t, nil), NATSOptions{}); err == nil || !strings.Contains(err.Error(), "hub.nats.tls") {
		t.Errorf("%v", err)
	}
}

func TestSecureWebsocket(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert, key := a.pair()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	h := startHub(t, func(o *server.Options) {
		o.Websocket.Host, o.Websocket.Port = "127.0.0.1", server.RANDOM_PORT
		o.Websocket.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
	}).createStream()
	h.publish("a")
	c := h.config()
	c.URL = strings.Replace(h.server.WebsocketURL(), "ws://", "wss://", 1)
	c.TLS.CAFile = write(t, "ca.pem", a.pem)
	l := &ledger{}
	run(t, subscribe(t, c, NATSOptions{}), l.admit)
	until(t, "the event", l.has("a"))
}
