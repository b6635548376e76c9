// Package config reads one YAML file strictly and at once: a key that does not exist, a value of the wrong kind, a
// variable that is not set and a section whose values can't work together are all reported in one run, each with its
// place in the file and what to write instead, before anything is started. No message and no output holds a secret.
//
// The sections are the Config structs of the folders of the same name. What a key is called, is and may hold is read
// from the struct by these tags; a field without a yaml tag is no key:
//
//	yaml:"poll_every"   the key; "-" for none, ",inline" for a struct whose keys belong to the one around it
//	doc:"one line"      its meaning, shown by editors through the schema
//	enum:"keep,replace" the texts it may be
//	min:"1" max:"400d"  limits of a number, a duration or a size, written as values are
//	path:"true"         a relative path is relative to the file's folder; also any key called path, dir, socket or
//	                    *_file, unless it says path:"false"
//
// A pointer to a struct is a section that is off until it is named. A setting.Secret x, or a list of them, has a twin
// x_file that names a file to read it from. Any other text may be an address with a password in it: that is hidden too.
package config

import (
	"recibo/agent"
	"recibo/console"
	"recibo/downloads"
	"recibo/fetcher"
	"recibo/hub"
	"recibo/reporter"
	"recibo/rest"
	"recibo/store"
)

// Config is the whole file.
type Config struct {
	Hub       hub.Config       `yaml:"hub" doc:"the subscription: which events are taken, and through which transport"`
	REST      rest.Config      `yaml:"rest" doc:"what every HTTP client has in common"`
	Reporter  reporter.Config  `yaml:"reporter" doc:"the Reporter that reports are asked and downloaded from"`
	Fetcher   fetcher.Config   `yaml:"fetcher" doc:"extraction jobs: their messages, and the store that results are in"`
	Store     store.Config     `yaml:"store" doc:"the ledger"`
	Downloads downloads.Config `yaml:"downloads" doc:"the local folder"`
	Agent     agent.Config     `yaml:"agent" doc:"workers, attempts and polling"`
	Console   console.Config   `yaml:"console" doc:"the socket that commands talk to a running agent through"`
	Log       Log              `yaml:"log" doc:"what is written to standard error"`
}

// Log is the section log.
type Log struct {
	Level  string `yaml:"level" doc:"least level that is written" enum:"debug,info,warn,error"`
	Format string `yaml:"format" doc:"auto: text on a terminal, json elsewhere" enum:"auto,text,json"`
}

// Default returns the values in force without a file, with paths as they are documented: relative.
func Default() Config {
	return Config{
		Hub:       hub.DefaultConfig(),
		REST:      rest.DefaultConfig(),
		Reporter:  reporter.DefaultConfig(),
		Fetcher:   fetcher.DefaultConfig(),
		Store:     store.DefaultConfig(),
		Downloads: downloads.DefaultConfig(),
		Agent:     agent.DefaultConfig(),
		Console:   console.DefaultConfig(),
		Log:       Log{Level: "info", Format: "auto"},
	}
}

// shape is read anew each time: the defaults of sections hold lists, which no two configurations may share.
func shape() *model {
	return newModel(Config{}, map[string]any{
		"hub.nats":             hub.DefaultNATSConfig,
		"fetcher.amqp":         fetcher.DefaultAMQPConfig,
		"fetcher.sources.amqp": fetcher.DefaultAMQPConfig,
	})
}
