package console

import (
	"fmt"
	"io/fs"
	"strconv"
)

// Config is the section `console`.
type Config struct {
	Socket      string `yaml:"socket" path:"true" doc:"Unix socket for the command line; default: <store.path>.sock"`
	SocketMode  string `yaml:"socket_mode" doc:"octal mode of the socket: who may write to it may do what the command line does"`
	SocketGroup string `yaml:"socket_group" doc:"group of the socket, by name or number; empty leaves it"`
}

// DefaultConfig returns the documented defaults.
func DefaultConfig() Config { return Config{SocketMode: "0600"} }

// Validate says which value can't work.
func (c Config) Validate() error {
	_, err := c.mode()
	return err
}

// maxSocketPath is what a Unix socket's address holds on every system that recibo runs on, in bytes.
const maxSocketPath = 104

func (c Config) mode() (fs.FileMode, error) {
	mode, err := strconv.ParseUint(c.SocketMode, 8, 32)
	if err != nil || mode > 0o777 {
		return 0, fmt.Errorf("socket_mode: %q is no octal mode such as 0660", c.SocketMode)
	}
	return fs.FileMode(mode), nil
}

// Path returns where the socket of the ledger at store is.
func (c Config) Path(store string) string {
	if c.Socket != "" {
		return c.Socket
	}
	return store + ".sock"
}
