package command_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.etcd.io/bbolt"
)

// exits is `exits CODE PROGRAM ARG…`: like exec, for an exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	text, args := first(ts, args)
	want, err := strconv.Atoi(text)
	ts.Check(err)
	program, args := first(ts, args)
	err = ts.Exec(program, args...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, expected %d", got, want)
	}
}

// patience bounds every wait of a script. None ends by it unless something is wrong.
const patience = time.Minute

// eventually is `eventually requests …`, `eventually exists FILE`, `eventually sum FILE ID`, or `eventually PATTERN PROGRAM
// ARG…`, which runs the program until its standard output matches.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	what, args := first(ts, args)
	var condition func() error
	switch what {
	case "requests":
		condition = func() error { return requests(ts, args) }
	case "sum":
		condition = func() error { return sum(ts, args) }
	case "exists":
		file, _ := first(ts, args)
		condition = func() error { _, err := os.Stat(ts.MkAbs(file)); return err }
	default:
		pattern := regexp.MustCompile("(?m)" + what)
		program, args := first(ts, args)
		condition = func() error {
			err := ts.Exec(program, args...)
			if out := ts.ReadFile("stdout"); err == nil && !pattern.MatchString(out) {
				err = fmt.Errorf("no match for %q", pattern)
			}
			return err
		}
	}
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if (err == nil) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("not within %s: %v", patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sigterm is `sigterm`: what runs in the background is asked to stop, as a service manager asks.
func sigterm(ts *testscript.TestScript, _ bool, _ []string) {
	for _, cmd := range ts.BackgroundCmds() {
		if err := cmd.Process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			ts.Check(err)
		}
	}
}

// checkRequests is `requests lists|gets|downloads|tokens [ID] N`: what the Reporter was asked so far.
func checkRequests(ts *testscript.TestScript, _ bool, args []string) { ts.Check(requests(ts, args)) }

func requests(ts *testscript.TestScript, args []string) error {
	r := of(ts).Reporter.Requests()
	all := map[string]int{"lists": r.Lists, "gets": r.Gets, "downloads": r.Downloads, "tokens": r.Tokens}
	byID := map[string]map[string]int{"gets": r.GetsOf, "downloads": r.DownloadsOf, "bodies": r.BodiesOf}
	what, args := first(ts, args)
	got := all[what]
	if len(args) == 2 {
		got = byID[what][args[0]]
	}
	want, err := strconv.Atoi(args[len(args)-1])
	if err == nil && got != want {
		err = fmt.Errorf("%d requests (%s), expected %d", got, what, want)
	}
	return err
}

// checkSum is `sum FILE ID`: the file holds the bytes that the Reporter has for the report.
func checkSum(ts *testscript.TestScript, neg bool, args []string) {
	if err := sum(ts, args); (err == nil) == neg {
		ts.Fatalf("sum: %v", err)
	}
}

func sum(ts *testscript.TestScript, args []string) error {
	name, args := first(ts, args)
	id, _ := first(ts, args)
	data, err := os.ReadFile(ts.MkAbs(name))
	if err != nil {
		return err
	}
	hash := sha256.Sum256(data)
	if size, want := of(ts).Reporter.Sum(id); hex.EncodeToString(hash[:]) != want {
		return fmt.Errorf("%s has %d bytes, and they differ from the %d of %s", name, len(data), size, id)
	}
	return nil
}

// overwriteFile is `overwrite FILE TEXT`: the beginning of the file becomes the text, its length stays.
func overwriteFile(ts *testscript.TestScript, _ bool, args []string) {
	name, args := first(ts, args)
	text, _ := first(ts, args)
	file, err := os.OpenFile(ts.MkAbs(name), os.O_WRONLY, 0)
	ts.Check(err)
	_, err = file.WriteString(text)
	ts.Check(errors.Join(err, file.Close()))
}

// damageFile is `damage FILE`: its last half is cut off.
func damageFile(ts *testscript.TestScript, _ bool, args []string) {
	name, _ := first(ts, args)
	info, err := os.Stat(ts.MkAbs(name))
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(name), info.Size()/2))
}

// makeNewer is `newer FILE`: the ledger looks like one that a later version wrote.
func makeNewer(ts *testscript.TestScript, _ bool, args []string) {
	name, _ := first(ts, args)
	db, err := bbolt.Open(ts.MkAbs(name), 0o600, &bbolt.Options{Timeout: time.Second})
	ts.Check(err)
	err = db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		format := meta.Get([]byte("format"))
		if len(format) == 0 {
			return errors.New("no format in the ledger")
		}
		return meta.Put([]byte("format"), []byte("1000"))
	})
	ts.Check(errors.Join(err, db.Close()))
}

// sameBytes is `same FILE FILE`: like cmp, for files that are not text.
func sameBytes(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("same takes two files")
	}
	one, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	two, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	if bytes.Equal(one, two) == neg {
		ts.Fatalf("%s and %s: equal is %v", args[0], args[1], !neg)
	}
}
