package agent

import (
	"errors"
	"fmt"
	"time"

	"recibo/setting"
)

// Config is the section `agent`.
type Config struct {
	Workers      int           `yaml:"workers" doc:"downloads at a time"`
	Attempts     int           `yaml:"attempts" doc:"failed answers about one report before it is parked"`
	Backoff      setting.Range `yaml:"backoff" doc:"shortest and longest wait between attempts at one report"`
	PollEvery    time.Duration `yaml:"poll_every" doc:"interval of sweeps while the subscription is down or silent, or there is none; 0 turns polling off"`
	PollHealthy  time.Duration `yaml:"poll_healthy" doc:"interval of sweeps while the subscription is healthy; 0 turns them off"`
	PollLookBack time.Duration `yaml:"poll_look_back" doc:"how far a sweep reaches back before the last complete one"`
	PollGrace    time.Duration `yaml:"poll_grace" doc:"with a healthy subscription, how long a sweep leaves a completed report to its event"`
	StaleAfter   time.Duration `yaml:"stale_after" doc:"age at which a report in progress is called stale"`
	StartAt      time.Time     `yaml:"start_at" doc:"reports completed earlier are brought home only by fetch; default: first start less poll_look_back"`
	Shutdown     time.Duration `yaml:"shutdown" doc:"how long a stop waits for downloads in progress"`
}

// DefaultConfig returns the documented defaults.
func DefaultConfig() Config {
	return Config{
		Workers:      4,
		Attempts:     12,
		Backoff:      setting.Range{Min: time.Second, Max: 15 * time.Minute},
		PollEvery:    5 * time.Minute,
		PollHealthy:  time.Hour,
		PollLookBack: 48 * time.Hour,
		PollGrace:    2 * time.Minute,
		StaleAfter:   24 * time.Hour,
		Shutdown:     30 * time.Second,
	}
}

// Validate says which value can't work.
func (c Config) Validate() error {
	var errs []error
	if c.Workers < 1 || c.Workers > 256 {
		errs = append(errs, fmt.Errorf("workers: %d is outside 1 to 256", c.Workers))
	}
	if c.Attempts < 1 {
		errs = append(errs, fmt.Errorf("attempts: %d is less than 1", c.Attempts))
	}
	if c.Backoff.Min <= 0 || c.Backoff.Max < c.Backoff.Min {
		errs = append(errs, fmt.Errorf("backoff: %s is no range such as 1s..15m", c.Backoff))
	}
	if c.PollLookBack <= 0 {
		errs = append(errs, errors.New("poll_look_back: must be longer than 0"))
	}
	return errors.Join(errs...)
}
