package store

import (
	"encoding/json"
	"errors"
)

// counters are the numbers that Stats answers from. They change in the transactions of the rows that they count.
type counters struct {
	Receipts    [2][len(States)]int64 `json:"-"` // by kind, by place in States
	Events      int64                 `json:"events"`
	Quarantined int64                 `json:"quarantined"` // open entries
	Entries     uint64                `json:"entries"`     // the newest id of a quarantine entry
	Due         int64                 `json:"due"`
	Commits     uint64                `json:"commits"`
}

// countersRow is how they are written: receipts by name, so that the order of states may change.
type countersRow struct {
	counters
	ByName map[Kind]map[State]int64 `json:"receipts"`
}

func (c *counters) receipts(kind Kind, state State, by int64) {
	for i, s := range States {
		if s == state {
			c.Receipts[kindIndex(kind)][i] += by
		}
	}
}

func kindIndex(k Kind) int {
	if k == Job {
		return 1
	}
	return 0
}

func (c *counters) byName() map[Kind]map[State]int64 {
	all := make(map[Kind]map[State]int64, 2)
	for _, kind := range [...]Kind{Report, Job} {
		all[kind] = make(map[State]int64, len(States))
		for i, s := range States {
			all[kind][s] = c.Receipts[kindIndex(kind)][i]
		}
	}
	return all
}

func (c *counters) encode() []byte {
	// Numbers and names of ours only: this can't fail.
	data, _ := json.Marshal(countersRow{*c, c.byName()})
	return data
}

func decodeCounters(data []byte) (counters, error) {
	if data == nil {
		return counters{}, errors.New("missing")
	}
	var row countersRow
	if err := json.Unmarshal(data, &row); err != nil {
		return counters{}, err
	}
	for kind, states := range row.ByName {
		for state, n := range states {
			row.receipts(kind, state, n)
		}
	}
	return row.counters, nil
}
