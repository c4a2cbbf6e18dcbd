package ingest

import "log/slog"

// Changes lists the models, or server streams, added, changed and removed by another configuration.
type Changes struct{ Added, Changed, Removed []string }

// Empty reports whether nothing has changed.
func (c *Changes) Empty() bool { return len(c.Added)+len(c.Changed)+len(c.Removed) == 0 }

// Attr returns the changes for the log, without empty lists.
func (c *Changes) Attr(key string) slog.Attr {
	var lists []any
	for _, l := range []struct {
		key   string
		names []string
	}{{"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		if len(l.names) > 0 {
			lists = append(lists, slog.Any(l.key, l.names))
		}
	}
	return slog.Group(key, lists...)
}
