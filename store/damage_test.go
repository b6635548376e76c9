package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// closedLedger returns the bytes of a ledger with rows in every bucket, short and long ones, after a clean stop or as a
// crash leaves it.
func closedLedger(t *testing.T, clean bool, batches int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recibo.db")
	s, err := Open(path, Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{s, t, nil}
	for i := range batches {
		var batch []Admission
		for j := range 20 {
			batch = append(batch, event(fmt.Sprint("e", i, "-", j), fmt.Sprint("r", i, "-", j)))
		}
		big := kept(fmt.Sprint("q", i))
		big.Quarantine.Data = bytes.Repeat([]byte("x"), 9000)
		if _, err := s.Admit(t.Context(), append(batch, big)); err != nil {
			t.Fatal(err)
		}
	}
	l.set(func(r *Receipt) { r.State, r.Due, r.Intent = Delivered, time.Time{}, &Intent{} }, report("r0-0"), report("r0-1"))
	if err := l.SetFact(t.Context(), "sweep", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := l.Drop(t.Context(), 1, "test"); err != nil {
		t.Fatal(err)
	}
	if !clean {
		if err := l.between(t.Context(), func() error { s.written = false; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := readMeta(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return data[:(m.pages+1)*m.pageSize] // of the room made ahead, one page is enough
}

// ledgerFile writes bytes where a ledger is expected.
func ledgerFile(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recibo.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// refused opens, checks, compacts and restores a file that can't be used, wants each to say so and none to touch it.
func refused[E error](t *testing.T, data []byte) {
	t.Helper()
	path := ledgerFile(t, data)
	_, openErr := Open(path, Options{Create: true})
	_, _, compactErr := Compact(t.Context(), path)
	other := filepath.Join(t.TempDir(), "other.db")
	_, restoreErr := Restore(t.Context(), path, other)
	for name, err := range map[string]error{
		"open": openErr, "compact": compactErr, "restore": restoreErr, "check": Check(t.Context(), path),
	} {
		var want E
		if !errors.As(err, &want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, data) {
		t.Errorf("the file was changed: %v", err)
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(other)} {
		entries, err := os.ReadDir(dir)
		if err != nil || (len(entries) > 0 && entries[0].Name() != "recibo.db") || len(entries) > 1 {
			t.Errorf("left in the folder: %v, %v", entries, err)
		}
	}
}

func TestADamagedFileIsReportedAndLeftAlone(t *testing.T) {
	t.Parallel()
	good := closedLedger(t, true, 5)
	m, err := readMeta(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	used := int(m.pages * m.pageSize)
	zeroed := func(from, to int) []byte {
		data := bytes.Clone(good)
		clear(data[from:to])
		return data
	}
	for name, data := range map[string][]byte{
		"empty":                      {},
		"one byte":                   good[:1],
		"part of the first page":     good[:100],
		"the first page":             good[:4096],
		"the meta pages":             good[:8192],
		"half":                       good[:used/2],
		"one page short":             good[:used-int(m.pageSize)],
		"one byte short":             good[:used-1],
		"zeroed":                     make([]byte, len(good)),
		"zeroed from the third page": zeroed(8192, len(good)),
		"first meta page zeroed":     zeroed(0, 4096),
		"second meta page zeroed":    zeroed(4096, 8192),
		"text":                       bytes.Repeat([]byte("this is no ledger\n"), 1000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused[*DamagedError](t, data)
		})
	}
	t.Run("cut behind the last page in use", func(t *testing.T) {
		t.Parallel()
		openAt(t, ledgerFile(t, good[:used]))
	})
}

// Whatever page is lost, nothing crashes, and Check finds what Open can't see, which is a page that holds data only.
func TestEveryPageMayBeGarbage(t *testing.T) {
	t.Parallel()
	for name, clean := range map[string]bool{"after a clean stop": true, "after a crash": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := closedLedger(t, clean, 1)
			m, inUse := pagesInUse(t, good)
			random := rand.New(rand.NewPCG(5, 6))
			for id := range int(m.pages) {
				data := bytes.Clone(good)
				spoiled := data[id*int(m.pageSize) : (id+1)*int(m.pageSize)]
				clear(spoiled)
				if id%2 == 0 {
					for i := range spoiled {
						spoiled[i] = byte(random.Uint32())
					}
				}
				if usable(t, data) && inUse[id] {
					t.Errorf("page %d of %d is in use, spoiled and not missed", id, m.pages)
				}
			}
		})
	}
}

func pagesInUse(t *testing.T, data []byte) (meta, []bool) {
	t.Helper()
	m, err := readMeta(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	w := surveyor{ctx: t.Context(), file: bytes.NewReader(data), meta: m, used: make([]bool, m.pages)}
	w.used[0], w.used[1] = true, true
	if err := w.tree(m.root, 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	return m, w.used
}

// usable opens a file and reads everything in it; false when damage was reported on the way.
func usable(t *testing.T, data []byte) bool {
	t.Helper()
	path := ledgerFile(t, data)
	if err := Check(t.Context(), path); err != nil {
		var damaged *DamagedError
		if !errors.As(err, &damaged) {
			t.Errorf("check: %v", err)
		}
		// Open may not see it, if the page holds nothing but the middle of a long value, and must not crash.
		if s, err := Open(path, Options{}); err == nil {
			_ = s.Close()
		}
		return false
	}
	s, err := Open(path, Options{})
	if err != nil {
		t.Errorf("open after a good check: %v", err)
		return false
	}
	return s.Close() == nil
}

func TestANewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "recibo.db")
	s, err := Open(path, Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	(&ledger{s, t, nil}).raw(func(t *txn) { t.put(metaBucket, []byte(formatName), []byte("7")) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused[*NewerError](t, data)
	var newer *NewerError
	if _, err := Open(path, Options{}); !errors.As(err, &newer) || newer.Have != 7 || newer.Know != format {
		t.Errorf("error %v", err)
	}
}

func TestNoLedger(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "recibo.db")
	_, err := Open(path, Options{})
	_, _, compactErr := Compact(t.Context(), path)
	for name, err := range map[string]error{"open": err, "compact": compactErr, "check": Check(t.Context(), path)} {
		if !errors.Is(err, ErrMissing) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}

// A file that shrinks while it is open makes the memory map fault. That must end in an error, not in the process' death.
func TestAFileThatIsCutWhileOpenIsReported(t *testing.T) {
	t.Parallel()
	path := ledgerFile(t, closedLedger(t, true, 5))
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	if _, err := s.Get(t.Context(), report("r3-3")); !errors.As(err, &damaged) {
		t.Errorf("read: %v", err)
	}
	_, err = s.Admit(t.Context(), []Admission{event("new", "new")})
	if !errors.Is(err, ErrUnavailable) || !errors.As(err, &damaged) {
		t.Errorf("write: %v", err)
	}
	if err := s.Healthy(); !errors.As(err, &damaged) {
		t.Errorf("health: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 8192 {
		t.Errorf("the file was changed: %v, %v", info.Size(), err)
	}
}

func TestCheckFindsBooksThatDoNotAgree(t *testing.T) {
	t.Parallel()
	good := closedLedger(t, true, 5)
	for name, spoil := range map[string]func(*txn){
		"receipt that can't be read":   func(t *txn) { t.put(receiptBucket, receiptKey(report("r0-0")), []byte("{")) },
		"receipt under another's key":  func(t *txn) { t.put(receiptBucket, []byte("rx"), t.get(receiptBucket, receiptKey(report("r0-0")))) },
		"receipt without its counters": func(t *txn) { t.counters.receipts(Report, Pending, 1) },
		"receipt without due entry":    func(t *txn) { drop(t, dueBucket) },
		"receipt without state entry":  func(t *txn) { drop(t, stateBucket) },
		"receipt without intent entry": func(t *txn) { drop(t, intentBucket) },
		"due entry without receipt":    func(t *txn) { t.put(dueBucket, dueKey(false, time.Now(), []byte("rx")), nil) },
		"state entry without receipt":  func(t *txn) { t.put(stateBucket, stateKey(Failed, time.Now(), []byte("rx")), nil) },
		"event that can't be read":     func(t *txn) { t.put(eventBucket, eventKey(Reports, "e0-0"), []byte{9}) },
		"event off the shelf":          func(t *txn) { drop(t, shelfBucket) },
		"event that is not counted":    func(t *txn) { t.counters.Events-- },
		"entry that can't be read":     func(t *txn) { t.put(quarantineBucket, idKey(2), []byte("{")) },
		"entry without digest":         func(t *txn) { drop(t, digestBucket) },
		"closed entry not listed":      func(t *txn) { drop(t, closedBucket) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := ledgerFile(t, good)
			s, err := Open(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			(&ledger{s, t, nil}).raw(func(tx *txn) { tx.wrote = true; spoil(tx) })
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			var damaged *DamagedError
			if err := Check(context.Background(), path); !errors.As(err, &damaged) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// drop removes the first row of a bucket.
func drop(t *txn, id bucketID) {
	k, _ := t.cursor(id).First()
	t.del(id, bytes.Clone(k))
}
