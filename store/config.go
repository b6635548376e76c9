package store

import (
	"time"

	"recibo/setting"
)

// Config is the section "store" of the configuration.
type Config struct {
	Path      string        `yaml:"path" doc:"the ledger, one file; a network file system is refused"`
	Retention time.Duration `yaml:"retention" doc:"how long settled receipts are kept, with the ids of their events"`
	MinFree   setting.Size  `yaml:"min_free" doc:"intake stops while the ledger's file system has less room than this"`
}

// DefaultConfig keeps settled receipts for 400 days in ./data/recibo.db.
func DefaultConfig() Config {
	return Config{Path: "./data/recibo.db", Retention: 400 * 24 * time.Hour, MinFree: 64 << 20}
}
