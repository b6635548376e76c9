package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The file format of bbolt, version 2, as far as survey needs it. Numbers are in the byte order of the machine.
const (
	pageHeader   = 16 // id 8, kind 2, count 2, overflow 4
	element      = 16 // of a branch: position 4, key size 4, page 8; of a leaf: flags 4, position 4, key size 4, value size 4
	bucketHeader = 16 // root page 8, sequence 8
	metaSize     = 64 // the last 8 are the checksum of the rest
	metaAt       = pageHeader

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFreelist  = ^uint64(0)
)

var native = binary.NativeEndian

// meta is what a meta page says. Commits write the two in turn; the one with the higher transaction counts.
type meta struct {
	pageSize, root, freelist, pages, tx uint64
}

// readMeta reads both meta pages and returns the newer. Both must be good: a disk writes a sector whole or not at all, so
// a crash leaves the old one or the new one, and a bad one means that the file was changed by something else. The older
// would then miss a transaction that was reported as done.
func readMeta(file io.ReaderAt, size int64) (meta, error) {
	if size == 0 {
		return meta{}, errors.New("the file is empty")
	}
	first, err := metaPage(file, 0)
	if err != nil {
		return meta{}, fmt.Errorf("meta page 0: %w", err)
	}
	second, err := metaPage(file, int64(first.pageSize))
	if err != nil {
		return meta{}, fmt.Errorf("meta page 1: %w", err)
	}
	if second.pageSize != first.pageSize {
		return meta{}, errors.New("the meta pages disagree about the page size")
	}
	if second.tx > first.tx {
		return second, nil
	}
	return first, nil
}

func metaPage(file io.ReaderAt, at int64) (meta, error) {
	var buf [metaAt + metaSize]byte
	if _, err := file.ReadAt(buf[:], at); err != nil {
		return meta{}, err
	}
	b := buf[metaAt:]
	if native.Uint32(b) != metaMagic || native.Uint32(b[4:]) != metaVersion {
		return meta{}, errors.New("not a ledger")
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8])
	if sum.Sum64() != native.Uint64(b[metaSize-8:]) {
		return meta{}, errors.New("wrong checksum")
	}
	m := meta{
		pageSize: uint64(native.Uint32(b[8:])),
		root:     native.Uint64(b[16:]),
		freelist: native.Uint64(b[32:]),
		pages:    native.Uint64(b[40:]),
		tx:       native.Uint64(b[48:]),
	}
	if m.pageSize < 1024 || m.pageSize > 16<<20 || m.pageSize&(m.pageSize-1) != 0 || m.pages < 4 || m.pages > 1<<40 {
		return meta{}, errors.New("impossible sizes")
	}
	return m, nil
}

// page is a page as it lies in the file, with those that continue it.
type page struct{ b []byte }

func (p page) id() uint64       { return native.Uint64(p.b) }
func (p page) kind() uint16     { return native.Uint16(p.b[8:]) }
func (p page) count() int       { return int(native.Uint16(p.b[10:])) }
func (p page) overflow() uint32 { return native.Uint32(p.b[12:]) }

// child returns the i-th key of a branch and the page below it.
func (p page) child(i int) (key []byte, id uint64, err error) {
	e, err := p.element(i)
	if err != nil {
		return nil, 0, err
	}
	key, err = p.part(e, native.Uint32(p.b[e:]), native.Uint32(p.b[e+4:]))
	return key, native.Uint64(p.b[e+8:]), err
}

// row returns the i-th key and value of a leaf, and whether the value is a bucket.
func (p page) row(i int) (key, value []byte, isBucket bool, err error) {
	e, err := p.element(i)
	if err != nil {
		return nil, nil, false, err
	}
	flags, position := native.Uint32(p.b[e:]), native.Uint32(p.b[e+4:])
	keySize, valueSize := native.Uint32(p.b[e+8:]), native.Uint32(p.b[e+12:])
	if flags > bucketFlag {
		return nil, nil, false, fmt.Errorf("page %d: row %d is of no known kind", p.id(), i)
	}
	if key, err = p.part(e, position, keySize); err != nil {
		return nil, nil, false, err
	}
	value, err = p.part(e+uint64(keySize), position, valueSize)
	return key, value, flags == bucketFlag, err
}

// element is where the i-th element begins.
func (p page) element(i int) (uint64, error) {
	e := uint64(pageHeader + i*element)
	if e+element > uint64(len(p.b)) {
		return 0, fmt.Errorf("page %d: element %d is outside of it", p.id(), i)
	}
	return e, nil
}

// part is size bytes at a position counted from an element.
func (p page) part(from uint64, position, size uint32) ([]byte, error) {
	start := from + uint64(position)
	end := start + uint64(size)
	if end > uint64(len(p.b)) {
		return nil, fmt.Errorf("page %d: a key or value is outside of it", p.id())
	}
	return p.b[start:end], nil
}

// free returns the page numbers of a list of free pages.
func (p page) free() ([]uint64, error) {
	count, ids := uint64(p.count()), p.b[pageHeader:]
	if count == 0xFFFF && len(ids) >= 8 { // more than the header can count
		count, ids = native.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return nil, fmt.Errorf("page %d: the list of free pages is outside of it", p.id())
	}
	list := make([]uint64, count)
	for i := range list {
		list[i] = native.Uint64(ids[8*i:])
	}
	return list, nil
}
