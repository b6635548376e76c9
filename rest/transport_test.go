package rest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func pemFile(t *testing.T, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), strings.ReplaceAll(kind, " ", "-")+".pem")
	writePEM(t, file, kind, der)
	return file
}

// writePEM replaces a file as a rotation does.
func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	err := os.WriteFile(file+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pair is a self-signed certificate for 127.0.0.1.
type pair struct {
	tls.Certificate
	key []byte
}

func newPair(t *testing.T, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pkcs8}
}

// secure starts a TLS server that says which client certificate it saw, in which version of HTTP, on which connection.
func secure(t *testing.T, config *tls.Config) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		fmt.Fprintf(w, "%s over %s from %s", name, r.Proto, r.RemoteAddr)
	}))
	server.EnableHTTP2, server.TLS = true, config
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// tunnel starts a proxy that connects, and counts how often.
func tunnel(t *testing.T) (string, *atomic.Int32) {
	var count atomic.Int32
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		if r.Method != http.MethodConnect {
			fmt.Fprint(w, "from the proxy for "+r.Header.Get("Proxy-Authorization"))
			return
		}
		out, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(502)
			return
		}
		defer out.Close()
		in, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer in.Close()
		_, _ = io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{})
		go func() {
			_, _ = io.Copy(out, in)
			_ = out.(*net.TCPConn).CloseWrite()
			close(done)
		}()
		_, _ = io.Copy(in, out)
		_ = in.(*net.TCPConn).CloseWrite()
		<-done
	})
	return proxy.URL, &count
}

func TestRotatedFilesAreUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	for _, through := range []string{"none", "a proxy"} {
		t.Run(through, func(t *testing.T) {
			t.Parallel()
			var certificate atomic.Pointer[tls.Certificate]
			first, second := newPair(t, "first"), newPair(t, "second")
			certificate.Store(&first.Certificate)
			server := secure(t, &tls.Config{
				ClientAuth:     tls.RequireAnyClientCert,
				GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate.Load(), nil },
				NextProtos:     []string{"h2", "http/1.1"},
			})
			server.TLS.Certificates = nil
			s := quick(server.URL)
			s.CAFile = pemFile(t, "CERTIFICATE", newPair(t, "common").Certificate.Certificate[0])
			s.TLS.CAFile = pemFile(t, "CERTIFICATE", first.Certificate.Certificate[0])
			s.TLS.CertFile = pemFile(t, "CERTIFICATE", first.Certificate.Certificate[0])
			s.TLS.KeyFile = pemFile(t, "PRIVATE KEY", first.key)
			if through != "none" {
				s.Service.Proxy, _ = tunnel(t)
			}
			c := s.client(t)
			var last string
			connect := func() (string, error) { // on another connection than the last
				t.Helper()
				for {
					c.Close()
					if err := c.Acquire(bounded(t), Get); err != nil {
						t.Fatal(err)
					}
					body, _, err := fetch(t, c, Get)
					if err != nil {
						return "", err
					}
					said, from, _ := strings.Cut(body, " from ")
					if from != last {
						last = from
						return said, nil
					}
				}
			}
			expect := func(want string) {
				t.Helper()
				if said, err := connect(); err != nil || said != want {
					t.Fatalf("got %q, %v, want %q", said, err, want)
				}
			}
			expect("first over HTTP/2.0")

			certificate.Store(&second.Certificate)
			_, err := connect()
			failure(t, err, BadTLS)
			writePEM(t, s.TLS.CAFile, "CERTIFICATE", second.Certificate.Certificate[0])
			expect("first over HTTP/2.0")

			writePEM(t, s.TLS.CertFile, "CERTIFICATE", second.Certificate.Certificate[0])
			expect("first over HTTP/2.0") // the pair does not fit yet
			writePEM(t, s.TLS.KeyFile, "PRIVATE KEY", second.key)
			expect("second over HTTP/2.0")
		})
	}
}

func TestTheCommonRootsServeBesideTheServicesOwn(t *testing.T) {
	t.Parallel()
	one := newPair(t, "one")
	server := secure(t, &tls.Config{Certificates: []tls.Certificate{one.Certificate}})
	s := quick(server.URL)
	s.CAFile = pemFile(t, "CERTIFICATE", one.Certificate.Certificate[0])
	s.TLS.CAFile = pemFile(t, "CERTIFICATE", newPair(t, "two").Certificate.Certificate[0])
	if _, _, err := fetch(t, s.client(t), Get); err != nil {
		t.Error(err)
	}
}

func TestProxies(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "directly") })
	proxy, _ := tunnel(t)
	withUser := strings.Replace(proxy, "http://", "http://u:p@", 1)
	tests := map[string]struct{ common, own, want string }{
		"none":                       {"none", "", "directly"},
		"one for all":                {proxy, "", "from the proxy for "},
		"the service's goes first":   {"none", proxy, "from the proxy for "},
		"the service wants none":     {proxy, "none", "directly"},
		"with a user":                {withUser, "", "from the proxy for Basic dTpw"},
		"the environment, for local": {"", "", "directly"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := quick(server.URL)
			s.Config.Proxy, s.Service.Proxy = test.common, test.own
			if body, _, err := fetch(t, s.client(t), Get); err != nil || body != test.want {
				t.Errorf("got %q, %v", body, err)
			}
		})
	}
}

func TestCallsThatGetNoAnswer(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	stranger := secure(t, &tls.Config{Certificates: []tls.Certificate{newPair(t, "x").Certificate}})
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	silent := serve(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	contradicting := raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx")
	astray := raw(t, "HTTP/1.1 302 Found\r\nLocation: http://%zz/?password\r\nContent-Length: 0\r\n\r\n")
	stalled := rawFunc(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 9\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})
	huge := raw(t, "HTTP/1.1 200 OK\r\nX-Huge: "+strings.Repeat("x", 2<<20)+"\r\n\r\n")
	tests := map[string]struct {
		url   string
		class Class
		kind  Kind
		open  bool
		shows string
	}{
		"nobody listens":                     {closed.URL, Get, Unreachable, false, "connection refused"},
		"hung up":                            {raw(t, ""), Get, Unreachable, false, "EOF"},
		"an unknown authority":               {stranger.URL, Get, BadTLS, false, "certificate"},
		"plain HTTP on a TLS port":           {"https" + strings.TrimPrefix(plain.URL, "http"), Get, BadTLS, false, "to HTTPS client"},
		"headers never come":                 {silent.URL, Get, Unreachable, false, "awaiting response headers"},
		"headers of a download never come":   {silent.URL, Download, TooSlow, true, "awaiting response headers"},
		"a redirect whose body never comes":  {stalled, Get, Unreachable, false, "awaiting response headers"},
		"huge headers":                       {huge, Get, Malformed, true, "exceeded"},
		"not HTTP":                           {raw(t, "SSH-2.0-OpenSSH_9.6\r\n"), Get, Malformed, true, "malformed HTTP"},
		"a header with control characters":   {raw(t, "HTTP/1.1 200 OK\r\nX\x1b: y\r\n\r\n"), Get, Malformed, true, "malformed MIME header"},
		"two lengths that contradict":        {contradicting, Get, Unreachable, false, "Content-Length"},
		"a redirect to what can't be parsed": {astray, Get, Malformed, true, "Location"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := quick(test.url)
			if test.url == silent.URL || test.url == stalled {
				s.HeaderTimeout = 50 * time.Millisecond
			}
			c := s.client(t)
			_, _, err := fetch(t, c, test.class)
			e := failure(t, err, test.kind)
			line := err.Error()
			if !strings.Contains(line, test.shows) || strings.Contains(line, "query-part") || strings.ContainsAny(line, "\n\x1b") {
				t.Errorf("got %q", line)
			}
			if gateOf(c, test.class).Open != test.open || e.Status != 0 {
				t.Errorf("open %v: %v", !test.open, err)
			}
		})
	}
}

// In TLS 1.3 the refusal comes after the handshake, and may be overtaken by the end of its connection.
func TestTheRefusalOfOurCertificateIsNamedByOneOfTheProbes(t *testing.T) {
	t.Parallel()
	server := secure(t, &tls.Config{ClientAuth: tls.RequireAnyClientCert})
	s := quick(server.URL)
	s.TLS.CAFile = pemFile(t, "CERTIFICATE", server.Certificate().Raw)
	c := s.client(t)
	for {
		if err := c.Acquire(bounded(t), Get); err != nil {
			t.Fatal(err)
		}
		_, _, err := fetch(t, c, Get)
		var e *Error
		if !errors.As(err, &e) || !e.Service() || gateOf(c, Get).Open {
			t.Fatalf("got %v, gate %+v", err, gateOf(c, Get))
		}
		if e.Kind == BadTLS && strings.Contains(gateOf(c, Get).Reason, "certificate required") {
			return
		}
	}
}

func TestThereIsOneSecondTryBeforeAnAnswerAndNoneAfter(t *testing.T) {
	t.Parallel()
	hangUp := func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }
	status := func(code int, retryAfter string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			w.WriteHeader(code)
		}
	}
	tests := map[string]struct {
		first    func(http.ResponseWriter)
		requests int32
	}{
		"hung up":                   {hangUp, 2},
		"502":                       {status(502, ""), 1},
		"504":                       {status(504, ""), 1},
		"502 with Retry-After":      {status(502, "1"), 1},
		"503 may be about the file": {status(503, ""), 1},
		"500":                       {status(500, ""), 1},
		"429":                       {status(429, ""), 1},
		"403":                       {status(403, ""), 1},
		"404":                       {status(404, ""), 1},
		"405":                       {status(405, ""), 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var count atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if count.Add(1) == 1 {
					test.first(w)
				}
			}))
			server.Start()
			t.Cleanup(server.Close)
			_, _, err := fetch(t, quick(server.URL).client(t), Get)
			if (err == nil) != (test.requests == 2) || count.Load() != test.requests {
				t.Errorf("%d requests, %v", count.Load(), err)
			}
		})
	}
}
