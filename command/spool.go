package command

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"recibo/console"
)

// spool keeps the items of a call until the ledger has been let go: whoever reads slowly must not keep an agent from
// starting.
type spool struct{ file *os.File }

func newSpool() (*spool, error) {
	file, err := os.CreateTemp("", "recibo-items-")
	if err != nil {
		return nil, err
	}
	// Without a name it is gone with the process, however that ends.
	return &spool{file}, os.Remove(file.Name())
}

func (s *spool) handlers() console.Handlers {
	return console.Handlers{Item: func(m json.RawMessage) error {
		_, err := s.file.Write(m)
		return err
	}}
}

// replay hands every item to f, and ends the spool.
func (s *spool) replay(f func(json.RawMessage) error) error {
	defer func() { _ = s.file.Close() }() // only read from now on
	if f == nil {
		return nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for decoder := json.NewDecoder(s.file); ; {
		var m json.RawMessage
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(m)
		}
		if err != nil {
			return err
		}
	}
}
