package server

import (
	"time"

	"millrace/workers"
)

type Config struct {
	HTTP, GRPC     string
	Version        string
	Hosts, Origins []string
	Memory         struct{ Budget int64 }
	Limits         struct {
		MaxBody, MaxMessage, MaxPixels, MaxSessions int
	}
	Sources struct{ AllowPrivate bool }
	Drain   time.Duration
	Models  []ModelConfig
}
type ModelConfig struct{ workers.Config }

func (m ModelConfig) Worker() (workers.Config, error) { return m.Config, nil }
func (c Config) Validate() error                      { return nil }
func (c Config) withDefaults() Config {
	if c.Drain == 0 {
		c.Drain = 10 * time.Second
	}
	return c
}
