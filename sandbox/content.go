package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
)

// A report's file is a head, rows of 64 bytes and a tail. The rows of a chunk are a rotation of the format's printed
// rows, told by the seed and the chunk's number, and its first row names both: files of any size cost no memory and a
// copy per byte, no two chunks of any two reports are alike, and every row is whole, so the text formats stay well formed.
const (
	rowSize   = 64
	chunkRows = 1024
	chunkSize = rowSize * chunkRows
	copySize  = 2 * chunkSize
)

// Sizes of a report's file in bytes.
const (
	MinSize     = 128  // smaller ones are raised to it: a head and a tail need room
	DefaultSize = 4096 // of a Report with Size 0
)

// mediaType of a format's download.
func mediaType(format string) string {
	switch format {
	case "pdf":
		return "application/pdf"
	case "xml":
		return "application/xml"
	case "html":
		return "text/html"
	case "csv":
		return "text/csv"
	case "txt":
		return "text/plain"
	default:
		return "application/octet-stream"
	}
}

// content is the bytes of one report's file.
type content struct {
	printed    *printed
	seed       uint64
	format     string
	head, tail []byte
	size       int64
}

// content describes the file of a report; nothing of it is made before it is read.
func (p *printed) content(format string, seed uint64, size int64) *content {
	head, tail := frame(format, seed)
	rows := (size - int64(len(head)+len(tail))) / rowSize
	pad := size - int64(len(head)+len(tail)) - rows*rowSize
	return &content{printed: p, seed: seed, format: format, size: size, tail: []byte(tail), head: padded(format, head, int(pad))}
}

// frame returns what a reader expects at the two ends of a file; both together stay under MinSize.
func frame(format string, seed uint64) (head, tail string) {
	switch format {
	case "pdf":
		return fmt.Sprintf("%%PDF-1.7\n%%%016x\n1 0 obj<</Type/Catalog>>stream\n", seed),
			"\nendstream endobj\ntrailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF\n"
	case "xml":
		return fmt.Sprintf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<report key=\"%016x\">\n", seed), "</report>\n"
	case "html":
		return fmt.Sprintf("<!doctype html>\n<html><head><title>%016x</title></head><body>\n", seed), "</body></html>\n"
	case "csv":
		return fmt.Sprintf("number,account,amount,key-%016x\n", seed), ""
	default:
		return fmt.Sprintf("Report %016x\n", seed), ""
	}
}

// padded lengthens a head to what the rows leave over, where the format allows it.
func padded(format, head string, pad int) []byte {
	switch format {
	case "pdf": // white space between a dictionary and its stream
		at := strings.LastIndex(head, "stream")
		return []byte(head[:at] + strings.Repeat(" ", pad) + head[at:])
	case "xml", "html": // white space before the end of the last tag
		at := strings.LastIndexByte(head, '>')
		return []byte(head[:at] + strings.Repeat(" ", pad) + head[at:])
	case "csv": // the last column's name
		at := len(head) - 1
		return []byte(head[:at] + strings.Repeat("_", pad) + head[at:])
	default:
		return []byte(head[:len(head)-1] + strings.Repeat(".", pad) + "\n")
	}
}

// firstRow names the seed and the chunk, in the format's form.
func firstRow(format string, seed uint64, chunk int64) string {
	mark := fmt.Sprintf("%016x-%011x", seed, chunk)
	switch format {
	case "pdf":
		return fmt.Sprintf("%%%-62s\n", mark)
	case "xml":
		return fmt.Sprintf("<!-- %-54s -->\n", mark)
	case "html":
		return fmt.Sprintf("<p>%-56s</p>\n", mark)
	case "csv":
		return fmt.Sprintf("%012x,%016x,0.00,%-28s\n", chunk, seed, mark)
	default:
		return fmt.Sprintf("%-63s\n", mark)
	}
}

// piece returns bytes that follow each other from off on, at least one; off is below the size.
func (c *content) piece(off int64) []byte {
	if off < int64(len(c.head)) {
		return c.head[off:]
	}
	if end := c.size - int64(len(c.tail)); off >= end {
		return c.tail[off-end:]
	}
	body := c.size - int64(len(c.head)+len(c.tail))
	at := off - int64(len(c.head))
	chunk, within := at/chunkSize, at%chunkSize
	if within < rowSize {
		return []byte(firstRow(c.format, c.seed, chunk))[within:]
	}
	rows := c.printed.rows(c.format)
	turn := int64(mix(c.seed+uint64(chunk))%chunkRows) * rowSize
	return rows[turn+within : turn+min(chunkSize, body-chunk*chunkSize)]
}

// copyTo writes the bytes from off up to end and returns how many w took.
func (c *content) copyTo(w io.Writer, off, end int64) (int64, error) {
	buffer := c.printed.buffers.Get().(*[copySize]byte)
	defer c.printed.buffers.Put(buffer)
	reader := contentReader{c, off, end}
	var written int64
	for reader.off < end {
		n, _ := io.ReadFull(&reader, buffer[:min(copySize, end-reader.off)])
		m, err := w.Write(buffer[:n])
		written += int64(m)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (c *content) length() int64 { return c.size }

// sum returns the SHA-256 of all bytes in lower-case hex.
func (c *content) sum() string {
	hash := sha256.New()
	_, _ = c.copyTo(hash, 0, c.size) // a hash takes everything
	return hex.EncodeToString(hash.Sum(nil))
}

// contentReader reads a range of a content.
type contentReader struct {
	*content
	off, end int64
}

// Read implements io.Reader.
func (r *contentReader) Read(p []byte) (int, error) {
	if r.off >= r.end {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.end-r.off)]
	n := 0
	for n < len(p) {
		m := copy(p[n:], r.piece(r.off))
		n, r.off = n+m, r.off+int64(m)
	}
	return n, nil
}

// WriteTo implements io.WriterTo.
func (r *contentReader) WriteTo(w io.Writer) (int64, error) {
	n, err := r.copyTo(w, r.off, r.end)
	r.off += n
	return n, err
}

// printed is the rows that contents are cut from, made when first asked for, and the buffers they are copied through.
type printed struct {
	seed    uint64
	buffers sync.Pool

	mu       sync.RWMutex
	byFormat map[string][]byte
}

func newPrinted(seed uint64) *printed {
	p := &printed{seed: seed, byFormat: map[string][]byte{}}
	p.buffers.New = func() any { return new([copySize]byte) }
	return p
}

// rows returns two chunks with the same rows, so that every rotation is one slice.
func (p *printed) rows(format string) []byte {
	p.mu.RLock()
	rows := p.byFormat[format]
	p.mu.RUnlock()
	if rows != nil {
		return rows
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	random := rand.New(rand.NewPCG(p.seed, 0))
	var chunk bytes.Buffer
	for range chunkRows {
		chunk.WriteString(row(format, random))
	}
	p.byFormat[format] = bytes.Repeat(chunk.Bytes(), 2)
	return p.byFormat[format]
}

// row is one record of 64 bytes.
func row(format string, random *rand.Rand) string {
	number, account, cents := random.Uint32(), random.Uint64(), random.Uint32N(1e9)
	switch format {
	case "pdf":
		raw := make([]byte, rowSize)
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		return string(raw)
	case "xml":
		return fmt.Sprintf("<r n=\"%08x\" account=\"%016x\" amount=\"%09d\"/>\n", number, account, cents)
	case "html":
		return fmt.Sprintf("<p>%08x <b>%016x</b> <i>%09d</i> posted</p>\n", number, account, cents)
	case "csv":
		return fmt.Sprintf("%08x,%016x,%09d,%-27s\n", number, account, cents, "settled")
	default:
		return fmt.Sprintf("%08x  %016x  %09d  %-24s\n", number, account, cents, "settled")
	}
}

// mix spreads a number over all 64 bits (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
