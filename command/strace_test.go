package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"recibo/sandbox"
)

// call is one system call, from the line of the trace where it was entered to the one where it returned.
type call struct {
	name, text string
	begin, end int
}

// trace is what strace saw, in order.
type trace []call

var (
	wholeCall   = regexp.MustCompile(`^(\d+) +(\w+)\((.*)$`)
	resumedCall = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)$`)
	result      = regexp.MustCompile(`\) += (-?\d+)`)
)

// readTrace joins the calls that another thread's interrupted, and leaves out those that failed or never returned.
func readTrace(t *testing.T, path string) trace {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all trace
	open := map[string]call{} // by thread
	for n, line := range strings.Split(string(data), "\n") {
		var c call
		if m := resumedCall.FindStringSubmatch(line); m != nil {
			c = open[m[1]]
			delete(open, m[1])
			c.text += m[3]
		} else if m := wholeCall.FindStringSubmatch(line); m != nil {
			text, unfinished := strings.CutSuffix(m[3], "<unfinished ...>")
			c = call{name: m[2], text: strings.TrimRight(text, " "), begin: n}
			if unfinished {
				open[m[1]] = c
				continue
			}
		} else {
			continue // a signal or an exit
		}
		c.end = n
		if r := result.FindAllStringSubmatch(c.text, -1); len(r) > 0 && !strings.HasPrefix(r[len(r)-1][1], "-") {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b call) int { return a.begin - b.begin })
	return all
}

// after returns the first call that begins after a line and is as asked for.
func (all trace) after(t *testing.T, line int, what string, ok func(call) bool) call {
	t.Helper()
	for _, c := range all {
		if c.begin > line && ok(c) {
			return c
		}
	}
	t.Fatalf("%s: not in the trace after line %d", what, line+1)
	return call{}
}

// syncs tells an fsync or fdatasync of exactly this path.
func syncs(path string) func(call) bool {
	return func(c call) bool {
		return (c.name == "fsync" || c.name == "fdatasync") && strings.Contains(c.text, "<"+path+">)")
	}
}

// writes tells a write into a file that holds a text.
func writes(path, text string) func(call) bool {
	return func(c call) bool {
		return c.name == "pwrite64" && strings.Contains(c.text, "<"+path+">, ") && strings.Contains(c.text, text)
	}
}

var offset = regexp.MustCompile(`, (\d+)\) += \d+`)

// commit returns the ledger's write of a text and the sync that ends its commit: that of the meta page, which comes
// after the sync of the pages it speaks of.
func (all trace) commit(t *testing.T, line int, ledger, text string) (begin, end call) {
	t.Helper()
	begin = all.after(t, line, "the ledger's write of "+text, writes(ledger, text))
	pages := all.after(t, begin.end, "the sync of the ledger's pages", syncs(ledger))
	meta := all.after(t, pages.end, "the write of the ledger's meta page", func(c call) bool {
		m := offset.FindStringSubmatch(c.text[max(0, len(c.text)-40):])
		if !writes(ledger, "")(c) || m == nil {
			return false
		}
		at, _ := strconv.Atoi(m[1])
		return at < 2*os.Getpagesize()
	})
	return begin, all.after(t, meta.end, "the sync of the ledger's meta page", syncs(ledger))
}

// TestEverythingReachesTheDiskInTheOrderThatAPowerCutAsksFor looks at the system calls, since a process that is merely
// killed leaves what it wrote in the kernel's hands, synced or not.
func TestEverythingReachesTheDiskInTheOrderThatAPowerCutAsksFor(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed: make test installs it")
	}
	tests := map[string]struct {
		layout string
		nested bool
	}{
		"one folder":     {"{id}.{ext}", false},
		"nested folders": {"{yyyy}/{template}/{id}.{ext}", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(t, sandbox.Options{}, fmt.Sprintf("  layout: %q\n", test.layout), "")
			const event = "the-event-under-the-trace"
			report := in.sandbox.Reporter.Add(sandbox.Report{Size: 300_000, CompletedAt: time.Now().Add(-time.Hour)})
			for range 3 {
				if err := in.sandbox.Hub.Publish(t.Context(), sandbox.Event{ID: event, ReportID: report.ID}); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(in.dir, "trace")
			c := in.startAs(exec.Command(strace, "-f", "-y", "-s", "65536", "-o", file,
				"-e", "trace=fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,openat,write,pwrite64",
				in.binary, "--config", in.config, "run", "--until-idle", "1s", "--for", "90s"))
			select {
			case <-c.ended:
			case <-time.After(2 * time.Minute):
				t.Fatal("the traced agent did not come to its end")
			}
			if !c.ProcessState.Success() {
				t.Fatalf("ended with %v\n%s", c.ProcessState, c.tail())
			}
			all := readTrace(t, file)

			// An event is acknowledged once the ledger holds it.
			_, admitted := all.commit(t, 0, in.ledger, event)
			ack := all.after(t, 0, "the acknowledgement", func(c call) bool {
				return c.name == "write" && strings.Contains(c.text, "<socket:") && strings.Contains(c.text, "+ACK")
			})
			if ack.begin < admitted.end {
				t.Errorf("acknowledged at line %d, and on disk only at line %d", ack.begin+1, admitted.end+1)
			}

			// The staged file and its folder, then the intent, then the rename, then the folders, then the settlement.
			staging := filepath.Join(in.home, ".recibo", "staging")
			rename := all.after(t, 0, "the rename", func(c call) bool {
				return strings.HasPrefix(c.name, "rename") && strings.Contains(c.text, report.ID+".pdf\"")
			})
			part := regexp.MustCompile(regexp.QuoteMeta(report.ID) + `\.\w+\.\w+\.part`).FindString(rename.text)
			if part == "" {
				t.Fatalf("the rename is not from the staged file: %s", rename.text)
			}
			staged := all.after(t, admitted.end, "the sync of the staged file", syncs(filepath.Join(staging, part)))
			folder := all.after(t, staged.end, "the sync of the staging folder", syncs(staging))
			intent, announced := all.commit(t, 0, in.ledger, part)
			_, settled := all.commit(t, rename.end, in.ledger, "delivered as")
			settling := all.after(t, rename.end, "the settlement", writes(in.ledger, "delivered as"))
			target := in.home
			if test.nested {
				year, template := strconv.Itoa(report.CompletedAt.UTC().Year()), report.TemplateID
				target = filepath.Join(in.home, year, template)
				for parent, made := range map[string]string{in.home: year, filepath.Join(in.home, year): template} {
					mkdir := all.after(t, 0, "the folder "+made, func(c call) bool {
						return strings.HasPrefix(c.name, "mkdir") && strings.Contains(c.text, "<"+parent+">") && strings.Contains(c.text, `"`+made+`"`)
					})
					synced := all.after(t, mkdir.end, "the sync of the parent of "+made, syncs(parent))
					inOrder(t, "a new folder's entry", synced, settling)
				}
			}
			final := all.after(t, rename.end, "the sync of the final folder", syncs(target))
			inOrder(t, "the staging folder before the intent", folder, intent)
			inOrder(t, "the intent before the rename", announced, rename)
			inOrder(t, "the final folder before the settlement", final, settling)
			inOrder(t, "the settlement in the end", rename, settled)
		})
	}
}

// inOrder wants one call to have returned before the next is entered.
func inOrder(t *testing.T, what string, first, then call) {
	t.Helper()
	if first.end >= then.begin {
		t.Errorf("%s: %s at lines %d to %d, %s at line %d", what, first.name, first.begin+1, first.end+1, then.name, then.begin+1)
	}
}
