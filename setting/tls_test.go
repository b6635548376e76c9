package setting

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificate returns a self-signed certificate and its key, both PEM.
func certificate(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

func nameOf(t *testing.T, pair *tls.Certificate) string {
	t.Helper()
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert.Subject.CommonName
}

func trusts(t *testing.T, m *Material, cert string) bool {
	t.Helper()
	roots, err := m.Roots()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(cert))
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	_, err = parsed.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

func TestWithoutFilesTheSystemDecides(t *testing.T) {
	t.Parallel()
	m, err := NewMaterial(TLS{}, "")
	if err != nil {
		t.Fatal(err)
	}
	config, err := m.Client("host")
	if err != nil || config.RootCAs != nil || config.ServerName != "host" || config.MinVersion != tls.VersionTLS12 || config.InsecureSkipVerify {
		t.Errorf("got %+v, %v", config, err)
	}
	pair, err := config.GetClientCertificate(nil)
	if err != nil || len(pair.Certificate) != 0 {
		t.Errorf("a certificate from nowhere: %v, %v", pair, err)
	}
}

func TestRootsFollowTheirFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, shared := filepath.Join(dir, "own"), filepath.Join(dir, "shared")
	first, _ := certificate(t, "first")
	second, _ := certificate(t, "second")
	common, _ := certificate(t, "common")
	put(t, own, first)
	put(t, shared, common)
	m, err := NewMaterial(TLS{CAFile: own}, shared)
	if err != nil {
		t.Fatal(err)
	}
	if !trusts(t, m, first) || !trusts(t, m, common) || trusts(t, m, second) {
		t.Error("other roots than the files hold")
	}
	put(t, own, second)
	if trusts(t, m, first) || !trusts(t, m, common) || !trusts(t, m, second) {
		t.Error("the new root is not seen")
	}
	put(t, own, "half a file")
	if !trusts(t, m, second) {
		t.Error("the last good roots are gone")
	}
	if err := os.Remove(shared); err != nil {
		t.Fatal(err)
	}
	if !trusts(t, m, common) {
		t.Error("the last good roots are gone with the file")
	}
}

func TestCertificateFollowsItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := TLS{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	firstCert, firstKey := certificate(t, "first")
	secondCert, secondKey := certificate(t, "second")
	put(t, files.CertFile, firstCert)
	put(t, files.KeyFile, firstKey)
	m, err := NewMaterial(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "first"},
		{func() { put(t, files.CertFile, secondCert) }, "first"}, // the key is still the old one
		{func() { put(t, files.KeyFile, secondKey) }, "second"},
		{func() { _ = os.Remove(files.KeyFile) }, "second"},
	} {
		step.change()
		pair, err := m.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		if got := nameOf(t, pair); got != step.want {
			t.Errorf("got %s, want %s", got, step.want)
		}
	}
}

func TestMaterialThatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, _ := certificate(t, "a")
	_, otherKey := certificate(t, "b")
	for name, content := range map[string]string{"cert": cert, "otherkey": otherKey, "text": "no PEM"} {
		put(t, filepath.Join(dir, name), content)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, tt := range map[string]struct {
		files TLS
		extra string
	}{
		"certificate without key":  {files: TLS{CertFile: in("cert")}},
		"key without certificate":  {files: TLS{KeyFile: in("otherkey")}},
		"key of another":           {files: TLS{CertFile: in("cert"), KeyFile: in("otherkey")}},
		"certificate that is text": {files: TLS{CertFile: in("text"), KeyFile: in("otherkey")}},
		"no root file":             {files: TLS{CAFile: in("none")}},
		"root that is text":        {files: TLS{CAFile: in("text")}},
		"extra root that is text":  {extra: in("text")},
	} {
		if _, err := NewMaterial(tt.files, tt.extra); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
