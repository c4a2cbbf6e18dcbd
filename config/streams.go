package config

import (
	"fmt"

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
		r.add(coded.PrefixField(at, err))
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
	type owner struct {
		stream int
		streams.Claim
	}
	names, owners := map[string]int{}, map[string]owner{}
	for i, s := range c.Streams {
		at := fmt.Sprintf("streams[%d]", i)
		for _, err := range setting.Split(s.Validate()) {
			errs = append(errs, coded.PrefixField(at, err))
		}
		if j, twice := names[s.Name]; twice && s.Name != "" {
			bad(at+".name", "%q is the name of streams[%d] already", s.Name, j)
		} else {
			names[s.Name] = i
		}
		for _, c := range s.Claims() {
			o, twice := owners[c.Value]
			if twice && (c.Exclusive || o.Exclusive) {
				bad(at+"."+c.Path, "%q is that of streams[%d].%s already: give each its own", c.Value, o.stream, o.Path)
			}
			owners[c.Value] = owner{i, c}
		}
	}
	if c.HTTP == Off && (len(c.Streams) > 0 || c.StreamsFile != "") {
		bad("http", "is off, and server streams need it: give it an address, such as 127.0.0.1:8000")
	}
	if n := len(c.Streams); n > c.Limits.MaxStreams {
		bad("limits.max_streams", "%d is less than the %d streams of the configuration", c.Limits.MaxStreams, n)
	}
	return errs
}
