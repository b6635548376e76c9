package command_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// Commands that judge what came of a job.

// checkResult is `result FILE ID [of=NAME]`: the file holds the plaintext of the job's result.
func checkResult(ts *testscript.TestScript, neg bool, args []string) {
	file, w, id := fileOfJob(ts, args)
	want := w.Plaintext(id)
	if bytes.Equal(file, want) == neg {
		ts.Fatalf("%d bytes, %d in the result of %s: equal is %v", len(file), len(want), id, !neg)
	}
}

// checkStored is `stored FILE ID [of=NAME]`: the file holds the job's object as it is stored, encrypted.
func checkStored(ts *testscript.TestScript, neg bool, args []string) {
	file, w, id := fileOfJob(ts, args)
	want, ok := w.Objects.Get(w.Key(id))
	if bytes.Equal(file, want) == neg || !ok {
		ts.Fatalf("%d bytes, %d in the object of %s: equal is %v", len(file), len(want), id, !neg)
	}
}

func fileOfJob(ts *testscript.TestScript, args []string) ([]byte, *worker, string) {
	name, args := first(ts, args)
	id, args := first(ts, args)
	o := options(ts, false, args)
	w := o.worker()
	o.done()
	file, err := os.ReadFile(ts.MkAbs(name))
	ts.Check(err)
	return file, w, id
}

// checkMode is `mode OCTAL FILE…`.
func checkMode(ts *testscript.TestScript, _ bool, args []string) {
	want, args := first(ts, args)
	for _, name := range args {
		info, err := os.Stat(ts.MkAbs(name))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != want {
			ts.Fatalf("%s has the mode %s, expected %s", name, got, want)
		}
	}
}

// checkAsked is `asked rest|objects ID N [of=NAME]`: how often Fetcher was asked about the job, or its object was asked for.
func checkAsked(ts *testscript.TestScript, _ bool, args []string) {
	what, args := first(ts, args)
	id, args := first(ts, args)
	count, args := first(ts, args)
	o := options(ts, false, args)
	w := o.worker()
	o.done()
	want, err := strconv.Atoi(count)
	ts.Check(err)
	got := 0
	switch what {
	case "rest":
		got = w.Requests()[id]
	case "objects":
		got = w.Objects.Requests(w.Key(id))
	default:
		ts.Fatalf("unknown: asked %s", what)
	}
	if got != want {
		ts.Fatalf("%d requests (%s), expected %d", got, what, want)
	}
}
