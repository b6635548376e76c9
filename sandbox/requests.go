package sandbox

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Requests is what the Reporter was asked so far.
type Requests struct {
	Lists, Gets, Downloads, Tokens int // requests that arrived while up, refused ones included

	DownloadsOf map[string]int // requests for the file, by report id, unknown ids included
	GetsOf      map[string]int // requests for the description, by report id, unknown ids included
	BodiesOf    map[string]int // times that the sending of the file began, by report id

	DownloadsStarted   int // bodies of files begun
	DownloadsCompleted int // bodies of files handed over to their last byte
	BytesSent          int64

	Limited      int // answered 429 by a rate limit
	Unauthorised int // refused for want of a good token, or denied
	WhileDown    int // requests, and with Refuse connections, that came while not Up
}

// counters count without the Reporter's lock where they can.
type counters struct {
	lists, gets, downloads, tokens, started, completed, bytes, limited, unauthorised, whileDown atomic.Int64

	mu          sync.Mutex
	downloadsOf map[string]int
	getsOf      map[string]int
	bodiesOf    map[string]int
}

// arrive counts a request of a class.
func (c *counters) arrive(class, id string) {
	switch class {
	case ClassList:
		c.lists.Add(1)
	case ClassToken:
		c.tokens.Add(1)
	case ClassGet:
		c.gets.Add(1)
		c.count(&c.getsOf, id)
	case ClassDownload:
		c.downloads.Add(1)
		c.count(&c.downloadsOf, id)
	}
}

func (c *counters) begin(id string) {
	c.started.Add(1)
	c.count(&c.bodiesOf, id)
}

func (c *counters) count(of *map[string]int, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *of == nil {
		*of = map[string]int{}
	}
	(*of)[id]++
}

// Requests returns the counts as they are now.
func (r *Reporter) Requests() Requests {
	c := &r.counted
	c.mu.Lock()
	defer c.mu.Unlock()
	return Requests{
		Lists: int(c.lists.Load()), Gets: int(c.gets.Load()), Downloads: int(c.downloads.Load()), Tokens: int(c.tokens.Load()),
		DownloadsOf:      clone(c.downloadsOf),
		GetsOf:           clone(c.getsOf),
		BodiesOf:         clone(c.bodiesOf),
		DownloadsStarted: int(c.started.Load()), DownloadsCompleted: int(c.completed.Load()), BytesSent: c.bytes.Load(),
		Limited: int(c.limited.Load()), Unauthorised: int(c.unauthorised.Load()), WhileDown: int(c.whileDown.Load()),
	}
}

// clone never returns nil.
func clone(m map[string]int) map[string]int {
	if m == nil {
		return map[string]int{}
	}
	return maps.Clone(m)
}
