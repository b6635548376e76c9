package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestBrokerKeepsWhatIsDurableAndItsAddress(t *testing.T) {
	t.Parallel()
	b, err := StartBroker(t.Context(), BrokerOptions{})
	if errors.Is(err, ErrNoRabbitMQ) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	url := b.URL()
	if _, err := b.Ctl(t.Context(), "add_user", "ana", "secret-4711"); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	users, err := b.Ctl(t.Context(), "list_users")
	if err != nil || !strings.Contains(users, "ana") {
		t.Errorf("%q, %v", users, err)
	}
	if b.URL() != url {
		t.Errorf("%s was %s", b.URL(), url)
	}
	if _, err := b.Ctl(t.Context(), "add_user", "ana", "secret-4711"); err == nil || strings.Contains(err.Error(), "4711") {
		t.Errorf("added again: %v", err)
	}
	b.Close()
	if conn, err := net.Dial("tcp", b.address()); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
	if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestBrokerIsNotStartedOnATakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b, err := StartBroker(ctx, BrokerOptions{Dir: t.TempDir(), Port: taken.Addr().(*net.TCPAddr).Port})
	if errors.Is(err, ErrNoRabbitMQ) {
		t.Skip(err)
	}
	if err == nil {
		b.Close()
		t.Error("started")
	}
}

func TestBrokerWhoseStartIsCutShortLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	b, err := StartBroker(ctx, BrokerOptions{Dir: t.TempDir()})
	if errors.Is(err, ErrNoRabbitMQ) {
		t.Skip(err)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		b.Close()
		t.Errorf("%v", err)
	}
}
