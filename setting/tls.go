package setting

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
)

func stampOf(info os.FileInfo) fileStamp {
	stamp := fileStamp{modified: info.ModTime(), size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		stamp.inode = st.Ino
	}
	return stamp
}

// TLS names the files of one peer: roots added to the system's, and a client certificate with its key (PEM, each
// optional). Files are read again when they change; the last good ones stay in force.
type TLS struct {
	CAFile   string `yaml:"ca_file" doc:"PEM file of roots added to the system's"`
	CertFile string `yaml:"cert_file" doc:"PEM file of the client certificate"`
	KeyFile  string `yaml:"key_file" doc:"PEM file of the client certificate's key"`
}

// Material is TLS files in force, shared by every connection to one peer.
type Material struct {
	files TLS
	cas   []string // every file of roots

	mu        sync.Mutex
	rootStamp []fileStamp
	roots     *x509.CertPool
	pairStamp [2]fileStamp
	pair      *tls.Certificate
}

// NewMaterial reads the files now and says which can't be used. extraCA, which may be empty, is a further file of roots.
func NewMaterial(files TLS, extraCA ...string) (*Material, error) {
	if (files.CertFile == "") != (files.KeyFile == "") {
		return nil, errors.New("cert_file and key_file go together: one of them is missing")
	}
	m := &Material{files: files}
	for _, ca := range slices.Concat(extraCA, []string{files.CAFile}) {
		if ca != "" {
			m.cas = append(m.cas, ca)
		}
	}
	if _, err := m.Roots(); err != nil {
		return nil, err
	}
	if _, err := m.Certificate(); err != nil {
		return nil, err
	}
	return m, nil
}

// Roots returns the system's roots with those of the CA files; nil, which means the system's alone, without any.
func (m *Material) Roots() (*x509.CertPool, error) {
	if len(m.cas) == 0 {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	pool, stamps, err := m.readRoots()
	if err != nil {
		return m.roots, keep(m.roots != nil, err)
	}
	if pool != nil {
		m.roots, m.rootStamp = pool, stamps
	}
	return m.roots, nil
}

// readRoots returns nil for the pool when no file has changed.
func (m *Material) readRoots() (*x509.CertPool, []fileStamp, error) {
	stamps := make([]fileStamp, len(m.cas))
	for i, file := range m.cas {
		info, err := os.Stat(file)
		if err != nil {
			return nil, nil, err
		}
		stamps[i] = stampOf(info)
	}
	if slices.Equal(stamps, m.rootStamp) {
		return nil, nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, file := range m.cas {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, nil, fmt.Errorf("%s: no certificate in PEM form", file)
		}
	}
	return pool, stamps, nil
}

// Certificate returns the client certificate, nil without one.
func (m *Material) Certificate() (*tls.Certificate, error) {
	if m.files.CertFile == "" {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var stamps [2]fileStamp
	for i, file := range []string{m.files.CertFile, m.files.KeyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return m.pair, keep(m.pair != nil, err)
		}
		stamps[i] = stampOf(info)
	}
	if stamps != m.pairStamp {
		// During a rotation the two files disagree for a moment: the old pair serves until they fit again.
		pair, err := tls.LoadX509KeyPair(m.files.CertFile, m.files.KeyFile)
		if err != nil {
			return m.pair, keep(m.pair != nil, fmt.Errorf("%s: %w", m.files.CertFile, err))
		}
		m.pair, m.pairStamp = &pair, stamps
	}
	return m.pair, nil
}

// keep drops an error while an earlier good value is in force.
func keep(have bool, err error) error {
	if have {
		return nil
	}
	return err
}

// Client returns a TLS configuration for one new connection, with the files as they are now.
func (m *Material) Client(serverName string) (*tls.Config, error) {
	roots, err := m.Roots()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: serverName,
		RootCAs:    roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := m.Certificate()
			if err != nil || pair == nil {
				return &tls.Certificate{}, err
			}
			return pair, nil
		},
	}, nil
}
