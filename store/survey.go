package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// survey reads the structure of a ledger file, and nothing but reads: both meta pages, every page that is in use and the
// list of those that are not. It runs before bbolt is let near the file, because bbolt trusts it: a page out of place ends
// in a fault, and while it looks for free pages that happens on a goroutine of its own, where nothing can recover it.
// Reading is by pread, which reports a truncated file where a memory map would kill the process.
func survey(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &DamagedError{Path: path, Err: errors.New("not a regular file")}
	}
	w := surveyor{ctx: ctx, file: file, size: info.Size()}
	if err := w.run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &DamagedError{Path: path, Err: err}
	}
	return nil
}

type surveyor struct {
	ctx  context.Context
	file io.ReaderAt
	size int64
	meta meta
	used []bool   // by page number
	bufs [][]byte // one per level of the tree, used again for every page of that level
}

// maxDepth is far above what a tree of this page size can need.
const maxDepth = 64

func (w *surveyor) run() error {
	meta, err := readMeta(w.file, w.size)
	if err != nil {
		return err
	}
	// bbolt makes room ahead, so the file may be longer than its pages, never shorter.
	if need := meta.pages * meta.pageSize; uint64(w.size) < need {
		return fmt.Errorf("the file has %d bytes where its pages take %d", w.size, need)
	}
	w.meta, w.used = meta, make([]bool, meta.pages)
	w.used[0], w.used[1] = true, true
	if err := w.tree(meta.root, 0, nil, nil); err != nil {
		return err
	}
	if meta.freelist == noFreelist {
		return nil
	}
	return w.freelist(meta.freelist)
}

// tree follows the pages below id. Their keys lie in [from, below); nil is no bound.
func (w *surveyor) tree(id uint64, depth int, from, below []byte) error {
	if depth >= maxDepth {
		return fmt.Errorf("page %d: the tree is too deep", id)
	}
	p, err := w.page(id, depth)
	if err != nil {
		return err
	}
	switch p.kind() {
	case branchPage:
		return w.branch(p, depth, from, below)
	case leafPage:
		return w.leaf(p, depth, from, below)
	}
	return fmt.Errorf("page %d is neither branch nor leaf (%#x)", id, p.kind())
}

func (w *surveyor) branch(p page, depth int, from, below []byte) error {
	if p.count() == 0 {
		return fmt.Errorf("page %d: a branch without children", p.id())
	}
	for i := range p.count() {
		key, child, err := p.child(i)
		if err != nil {
			return err
		}
		if err := inOrder(p.id(), from, key, below, i > 0); err != nil {
			return err
		}
		next := below
		if i+1 < p.count() {
			if next, _, err = p.child(i + 1); err != nil {
				return err
			}
		}
		if err := w.tree(child, depth+1, key, next); err != nil {
			return err
		}
		from = key
	}
	return nil
}

func (w *surveyor) leaf(p page, depth int, from, below []byte) error {
	for i := range p.count() {
		key, value, isBucket, err := p.row(i)
		if err != nil {
			return err
		}
		if err := inOrder(p.id(), from, key, below, i > 0); err != nil {
			return err
		}
		from = key
		if isBucket {
			if err := w.bucket(p.id(), value, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket follows a bucket, which is either a tree of its own or, while it is small, a leaf within the value.
func (w *surveyor) bucket(in uint64, value []byte, depth int) error {
	if len(value) < bucketHeader {
		return fmt.Errorf("page %d: a bucket without a header", in)
	}
	if root := native.Uint64(value); root != 0 {
		return w.tree(root, depth+1, nil, nil)
	}
	inline := page{value[bucketHeader:]}
	if len(inline.b) < pageHeader || inline.kind() != leafPage {
		return fmt.Errorf("page %d: an unreadable bucket", in)
	}
	return w.leaf(inline, depth, nil, nil)
}

func inOrder(page uint64, from, key, below []byte, strictly bool) error {
	c := bytes.Compare(from, key)
	if c > 0 || (c == 0 && strictly) || (below != nil && bytes.Compare(key, below) >= 0) {
		return fmt.Errorf("page %d: key %x is out of order", page, key)
	}
	return nil
}

// page reads one page with those that continue it, and notes that they are in use.
func (w *surveyor) page(id uint64, depth int) (page, error) {
	if err := w.ctx.Err(); err != nil {
		return page{}, err
	}
	if id < 2 || id >= w.meta.pages {
		return page{}, fmt.Errorf("page %d is outside of the file's %d", id, w.meta.pages)
	}
	for len(w.bufs) <= depth {
		w.bufs = append(w.bufs, make([]byte, w.meta.pageSize))
	}
	if _, err := w.file.ReadAt(w.bufs[depth][:w.meta.pageSize], int64(id*w.meta.pageSize)); err != nil {
		return page{}, fmt.Errorf("page %d: %w", id, err)
	}
	p := page{w.bufs[depth][:w.meta.pageSize]}
	if p.id() != id {
		return page{}, fmt.Errorf("page %d calls itself %d", id, p.id())
	}
	more := uint64(p.overflow())
	if more >= w.meta.pages-id {
		return page{}, fmt.Errorf("page %d goes on for %d pages, beyond the end", id, more)
	}
	for i := id; i <= id+more; i++ {
		if w.used[i] {
			return page{}, fmt.Errorf("page %d is in use twice", i)
		}
		w.used[i] = true
	}
	if more == 0 {
		return p, nil
	}
	return w.long(id, more, depth)
}

func (w *surveyor) long(id, more uint64, depth int) (page, error) {
	size := (more + 1) * w.meta.pageSize
	if uint64(cap(w.bufs[depth])) < size {
		w.bufs[depth] = make([]byte, size)
	}
	buf := w.bufs[depth][:size]
	if _, err := w.file.ReadAt(buf, int64(id*w.meta.pageSize)); err != nil {
		return page{}, fmt.Errorf("page %d: %w", id, err)
	}
	return page{buf}, nil
}

// freelist checks the list of free pages: one that is in use as well would be written over by the next change.
func (w *surveyor) freelist(id uint64) error {
	p, err := w.page(id, 0)
	if err != nil {
		return err
	}
	if p.kind() != freelistPage {
		return fmt.Errorf("page %d is no list of free pages (%#x)", id, p.kind())
	}
	ids, err := p.free()
	if err != nil {
		return err
	}
	for _, free := range ids {
		if free < 2 || free >= w.meta.pages || w.used[free] {
			return fmt.Errorf("page %d is listed as free and is not", free)
		}
		w.used[free] = true
	}
	return nil
}
