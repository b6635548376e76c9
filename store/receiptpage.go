package store

import (
	"errors"
	"fmt"
)

// receiptPage collects the receipts of one page. A receipt that can't be read is reported and does not hide the others.
type receiptPage struct {
	r       *reader
	limit   int
	rows    []*Receipt
	size    int
	damaged []error
}

func newPage(r *reader, limit int) *receiptPage {
	return &receiptPage{r: r, limit: min(limit, pageRows)}
}

// room reports whether another row fits.
func (p *receiptPage) room() bool { return len(p.rows) < p.limit && p.size < pageBytes }

// read decodes the receipt under a key; nil when it is damaged.
func (p *receiptPage) read(key []byte) *Receipt {
	data := p.r.get(receiptBucket, key)
	p.size += len(data)
	k, err := parseReceiptKey(key)
	if err != nil {
		p.damaged = append(p.damaged, p.r.rowError(receiptBucket, fmt.Sprintf("%x", key), err))
		return nil
	}
	receipt, err := p.r.receipt(k)
	if err != nil {
		var damaged *DamagedError
		if !errors.As(err, &damaged) { // an index that names no receipt
			err = p.r.rowError(receiptBucket, k.String(), err)
		}
		p.damaged = append(p.damaged, err)
		return nil
	}
	return receipt
}

func (p *receiptPage) add(key []byte) {
	if receipt := p.read(key); receipt != nil {
		p.rows = append(p.rows, receipt)
	}
}

func (p *receiptPage) damage() error { return errors.Join(p.damaged...) }
