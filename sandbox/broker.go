package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ErrNoRabbitMQ is returned where RabbitMQ is not installed.
var ErrNoRabbitMQ = errors.New("sandbox: RabbitMQ is not installed")

// BrokerOptions shape a Broker.
type BrokerOptions struct {
	Dir  string // of all its files; default: a temporary one, removed by Close
	Port int    // on the loopback address; default: a free one, which stays the same over Stop and Start
}

// Broker is a private RabbitMQ: its name, ports, cookie and files are its own, so that it meets no other node of the
// machine. It listens on 127.0.0.1 only, lets guest with the password guest in, and has no plugins. Its processes end with
// this one, however that ends. Its methods may be called from several goroutines.
type Broker struct {
	dir       string
	temporary bool
	bin       string // folder of RabbitMQ's programs
	epmd      string // Erlang's port mapper, of which the node gets one of its own
	port      int
	env       []string

	mu      sync.Mutex // guards what follows
	process *brokerProcess
}

const (
	// brokerPatience bounds a start that has no context: about 4 s normally, much more on a busy machine.
	brokerPatience = 2 * time.Minute
	// brokerFarewell bounds a stop, which takes a second or two.
	brokerFarewell = 30 * time.Second
	// debianBin is where Debian keeps the programs themselves; those in the path run as the user of the system's own node.
	debianBin = "/usr/lib/rabbitmq/bin"
)

// StartBroker starts a broker; ctx bounds the start, Close ends the broker. It returns ErrNoRabbitMQ where there is none.
func StartBroker(ctx context.Context, o BrokerOptions) (*Broker, error) {
	b := &Broker{dir: o.Dir}
	if err := b.find(); err != nil {
		return nil, err
	}
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "recibo-broker-")
		if err != nil {
			return nil, err
		}
		b.dir, b.temporary = dir, true
	}
	err := b.prepare(o.Port)
	if err == nil {
		err = b.start(ctx)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// URL is the address, without credentials; it stays the same over every start.
func (b *Broker) URL() string { return "amqp://" + b.address() }

func (b *Broker) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// Start brings a stopped broker back on its port, with all that was durable.
func (b *Broker) Start() error {
	ctx, cancel := context.WithTimeout(context.Background(), brokerPatience)
	defer cancel()
	return b.start(ctx)
}

// Stop ends the broker in good order and waits for its end. It may be called again.
func (b *Broker) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		b.process.stop()
		b.process = nil
	}
}

// Restart stops and starts again.
func (b *Broker) Restart() error {
	b.Stop()
	return b.Start()
}

// Close stops the broker and removes a temporary folder.
func (b *Broker) Close() {
	b.Stop()
	if b.temporary {
		_ = os.RemoveAll(b.dir)
	}
}

// Ctl runs rabbitmqctl for this broker, such as Ctl(ctx, "add_user", "name", "password"), and returns its output.
func (b *Broker) Ctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "rabbitmqctl"), append([]string{"--quiet"}, args...)...)
	cmd.Env, cmd.Dir = b.env, b.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w: %s", args[0], err, bytes.TrimSpace(out)) // the arguments may hold a password
	}
	return string(out), nil
}

// find looks for the programs.
func (b *Broker) find() error {
	server := filepath.Join(debianBin, "rabbitmq-server")
	if _, err := os.Stat(server); err != nil {
		if server, err = exec.LookPath("rabbitmq-server"); err != nil {
			return ErrNoRabbitMQ
		}
	}
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return fmt.Errorf("%w: there is no epmd", ErrNoRabbitMQ)
	}
	b.bin, b.epmd = filepath.Dir(server), epmd
	return nil
}

// prepare writes the node's configuration, and the environment by which its programs find that and nothing else.
func (b *Broker) prepare(port int) error {
	dir, err := filepath.Abs(b.dir)
	if err != nil {
		return err
	}
	b.dir = dir
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	if b.port = port; port == 0 {
		b.port = ports[2]
	}
	for name, content := range map[string]string{
		"rabbitmq.conf": "listeners.tcp.1 = " + b.address() + "\n" +
			"vm_memory_high_watermark.absolute = 1GiB\ndisk_free_limit.absolute = 16MiB\nlog.file.level = warning\nlog.console = false\n",
		"enabled_plugins": "[].\n",
		"environment":     "", // instead of the system's
		"advanced.config": "[].\n",
	} {
		if err := os.MkdirAll(b.dir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	const loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
	b.env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + b.dir, // the cookie is made there
		"ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT=" + strconv.Itoa(ports[0]), "ERL_MAX_PORTS=4096",
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(ports[1]), "RABBITMQ_NODENAME=recibo-" + strconv.Itoa(b.port) + "@localhost",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 " + loopback, "RABBITMQ_CTL_ERL_ARGS=" + loopback,
		"RABBITMQ_CONF_ENV_FILE=" + b.file("environment"), "RABBITMQ_CONFIG_FILE=" + b.file("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + b.file("advanced.config"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + b.file("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + b.file("data"), "RABBITMQ_LOG_BASE=" + b.file("log"), "RABBITMQ_PID_FILE=" + b.file("node.pid"),
		"RABBITMQ_FEATURE_FLAGS_FILE=" + b.file("feature_flags"),
		"RUNNING_UNDER_SYSTEMD=true", // the server's script becomes the node, instead of standing before it
	}
	return nil
}

func (b *Broker) file(name string) string { return filepath.Join(b.dir, name) }

// A broker's ports lie below those that systems give to outgoing connections: one of these could take a port while the
// broker starts, or is stopped for a while.
const portsFrom, portsTo = 15_000, 32_000

// freePorts finds ports that nobody listens on.
func freePorts(count int) ([]int, error) {
	const tries = 1000
	var ports []int
	var err error
	for range tries {
		if len(ports) == count {
			return ports, nil
		}
		var listener net.Listener
		port := portsFrom + rand.IntN(portsTo-portsFrom)
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			defer func() { _ = listener.Close() }() // not before all are found
			ports = append(ports, port)
		}
	}
	return nil, fmt.Errorf("sandbox: no free port from %d to %d: %w", portsFrom, portsTo, err)
}

// start returns once the broker answers: a busy one takes connections before it can.
func (b *Broker) start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		return nil
	}
	if err := awaitPort(ctx, b.address()); err != nil {
		return err
	}
	p, err := b.launch()
	if err != nil {
		return err
	}
	for {
		conn, err := amqp.Dial(b.URL())
		if err == nil {
			_ = conn.Close()
			b.process = p
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("sandbox: the broker does not start: %s", strings.TrimSpace(p.output.String()))
		case <-ctx.Done():
			p.stop()
			return fmt.Errorf("sandbox: the broker does not start in time: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// brokerScript runs the port mapper and the node, and ends both once its input ends or the node does. The input is a pipe
// that this process holds, so that nothing is left behind when it dies.
const brokerScript = `
exec 3<&0
"$1" -port "$ERL_EPMD_PORT" -address 127.0.0.1 & epmd=$!
"$2" & node=$!
{ read -r _ <&3; kill -TERM "$node"; } & watch=$!
wait "$node"
kill "$watch" "$epmd" 2>/dev/null
wait`

// brokerProcess is one run of the script.
type brokerProcess struct {
	cmd    *exec.Cmd
	input  io.Closer
	output bytes.Buffer  // may be read once ended is closed
	ended  chan struct{} // closed when the script and all it started have ended
}

func (b *Broker) launch() (*brokerProcess, error) {
	p := &brokerProcess{ended: make(chan struct{})}
	p.cmd = exec.Command("/bin/sh", "-c", brokerScript, "sh", b.epmd, filepath.Join(b.bin, "rabbitmq-server"))
	p.cmd.Env, p.cmd.Dir = b.env, b.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is for us
	p.cmd.WaitDelay = time.Second
	input, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.input = input
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// stop ends the node in good order; when that takes too long, the whole group of processes.
func (p *brokerProcess) stop() {
	_ = p.input.Close()
	timer := time.NewTimer(brokerFarewell)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
}
