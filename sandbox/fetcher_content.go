package sandbox

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
)

// The result of a job is indented JSON: data source, table, rows. All rows have one width, so that a result of any size
// is written without being held; what is left over to the exact size pads the notes of the rows. Exact numbers come as
// strings, as in a Fetcher.
const (
	jobHead = "{\n"
	jobTail = "\n}"
	rowTail = "\",\n        \"owner\": \"Ana Concei\u00e7\u00e3o \\u0026 Cia\",\n        \"settled\": true\n      }"
	rowGlue = ",\n"
	padding = "settled in the usual way; nothing remarkable to report about it "
)

// jobTables are filled one after the other.
var jobTables = [2]struct{ head, tail string }{
	{"  \"midaz_onboarding\": {\n    \"account\": [\n", "\n    ]\n  }"},
	{",\n  \"midaz_transaction\": {\n    \"transaction\": [\n", "\n    ]\n  }"},
}

// jobFields are what the REST API says was extracted.
var jobFields = map[string]map[string][]string{
	"midaz_onboarding":  {"account": {"account", "amount", "id", "note", "owner", "settled"}},
	"midaz_transaction": {"transaction": {"account", "amount", "id", "note", "owner", "settled"}},
}

// jobContent is the plaintext of one job's result.
type jobContent struct {
	seed uint64
	rows int64
	pad  int64 // spread over the notes
	size int64
}

// newJobContent describes a result. Without a number of rows there are as many as the size has room for, below 0 none;
// a size without room for the rows is raised.
func newJobContent(seed uint64, rows, size int64) *jobContent {
	if rows < 0 {
		return &jobContent{seed: seed, size: 2}
	}
	width := int64(len(appendRowHead(nil, 0, 0)) + len(rowTail) + len(rowGlue))
	if rows == 0 {
		rows = max((size-frameSize(2)+2*int64(len(rowGlue)))/width, 1)
	}
	tables := min(rows, int64(len(jobTables)))
	least := frameSize(tables) + rows*width - tables*int64(len(rowGlue)) // the last row of a table has no glue
	size = max(size, least)
	return &jobContent{seed: seed, rows: rows, pad: size - least, size: size}
}

func frameSize(tables int64) int64 {
	size := len(jobHead) + len(jobTail)
	for _, table := range jobTables[:tables] {
		size += len(table.head) + len(table.tail)
	}
	return int64(size)
}

// writeTo writes the plaintext.
func (c *jobContent) writeTo(w io.Writer) error {
	if c.rows == 0 {
		_, err := io.WriteString(w, "{}")
		return err
	}
	out := bufio.NewWriterSize(w, copySize)
	out.WriteString(jobHead) // bufio keeps the first error for Flush
	first := (c.rows + 1) / 2
	c.table(out, 0, 0, first)
	if c.rows > first {
		c.table(out, 1, first, c.rows)
	}
	out.WriteString(jobTail)
	return out.Flush()
}

// table writes the rows from one number up to another.
func (c *jobContent) table(out *bufio.Writer, table int, from, to int64) {
	out.WriteString(jobTables[table].head)
	row := make([]byte, 0, 512)
	for number := from; number < to; number++ {
		pad := c.pad / c.rows
		if number < c.pad%c.rows {
			pad++
		}
		out.Write(appendRowHead(row, c.seed, number))
		for ; pad > 0; pad -= min(pad, int64(len(padding))) {
			out.WriteString(padding[:min(pad, int64(len(padding)))])
		}
		out.WriteString(rowTail)
		if number < to-1 {
			out.WriteString(rowGlue)
		}
	}
	out.WriteString(jobTables[table].tail)
}

// appendRowHead is a row up to the padding of its note. It has one width for every number below 9e9.
func appendRowHead(row []byte, seed uint64, number int64) []byte {
	drawn := mix(seed + uint64(number))
	row = append(row, "      {\n        \"account\": \""...)
	row = strconv.AppendUint(row, drawn|1<<63, 16) // the highest bit keeps the width
	row = append(row, "\",\n        \"amount\": \""...)
	row = strconv.AppendUint(row, 100_000_000+drawn%900_000_000, 10)
	row = append(row, '.')
	row = strconv.AppendUint(row, 10+drawn>>32%90, 10)
	row = append(row, "\",\n        \"id\": "...)
	row = strconv.AppendInt(row, 1_000_000_000+number, 10)
	return append(row, ",\n        \"note\": \""...)
}

// bytes holds the whole plaintext.
func (c *jobContent) bytes() []byte {
	var buffer bytes.Buffer
	buffer.Grow(int(c.size))
	_ = c.writeTo(&buffer) // a buffer takes everything
	return buffer.Bytes()
}

// other is a result of the same size with other bytes.
func (c *jobContent) other() *jobContent {
	if c.rows == 0 {
		return newJobContent(c.seed+1, 1, 0)
	}
	return newJobContent(mix(c.seed), c.rows, c.size)
}
