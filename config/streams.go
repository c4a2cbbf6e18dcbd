package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"millrace/ingest/streams"
	"millrace/internal/setting"
	"millrace/stream/coded"
)

// stream reads an entry of streams.
func (r *reader) stream(at string, node ast.Node) streams.Config {
	draft := streams.NewDraft()
	s := section{table: draft.Table()}
	r.section(&s, at, "", node)
	c, err := draft.Config()
	if err != nil {
		r.note(coded.Within(at, err))
	}
	c.Rebase(r.dir)
	return c
}

// StreamSettings lists the settings of a stream: keys of an entry under streams
// in the file.
func StreamSettings() []Setting { return describe(streams.NewDraft().Table()) }

func (c Config) validateStreams() (errs []error) {
	bad := func(path, format string, args ...any) {
		errs = append(errs, coded.Errorf(coded.InvalidArgument, path, format, args...))
	}
	names, values := map[string]int{}, map[string]int{}
	for i, s := range c.Streams {
		at := fmt.Sprintf("streams[%d]", i)
		for _, err := range setting.Split(s.Validate()) {
			errs = append(errs, coded.Within(at, err))
		}
		if j, twice := names[s.Name]; twice && s.Name != "" {
			bad(at+".name", "%q is the name of streams[%d] already", s.Name, j)
		} else {
			names[s.Name] = i
		}
		exclusive := s.Exclusive()
		for _, path := range slices.Sorted(maps.Keys(exclusive)) {
			value := exclusive[path]
			key := path + "=" + filepath.Clean(value)
			if j, twice := values[key]; twice {
				bad(at+"."+path, "%q is that of streams[%d] already: give each its own", value, j)
			}
			values[key] = i
		}
	}
	if c.HTTP == Off && (len(c.Streams) > 0 || c.StreamsFile != "") {
		bad("http", "is off, and streams of the server's own need it: give it an address, such as 127.0.0.1:8000")
	}
	if n := len(c.Streams); n > c.Limits.MaxStreams {
		bad("limits.max_streams", "%d is less than the %d streams of the configuration", c.Limits.MaxStreams, n)
	}
	return errs
}
