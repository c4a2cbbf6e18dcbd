package server

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"millrace/ingest/streams"
	"millrace/stream/coded"
)

// within is a path, which if relative starts from dir; "" stays.
func within(dir, path string) string {
	if path == "" || dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func (c Config) validateStreams() (errs []error) {
	names, values := map[string]int{}, map[string]int{}
	for i, s := range c.Streams {
		at := fmt.Sprintf("streams[%d]", i)
		if err := s.Validate(); err != nil {
			errs = append(errs, coded.Within(at, err))
		}
		if j, twice := names[s.Name]; twice {
			errs = append(errs, fault(at+".name", "%q is the name of streams[%d] already", s.Name, j))
		} else {
			names[s.Name] = i
		}
		exclusive := s.Exclusive()
		for _, path := range slices.Sorted(maps.Keys(exclusive)) {
			value := exclusive[path]
			key := path + "=" + filepath.Clean(value)
			if j, twice := values[key]; twice {
				errs = append(errs, fault(at+"."+path, "%q is that of streams[%d] already: give each its own", value, j))
			}
			values[key] = i
		}
	}
	if c.HTTP == Off && (len(c.Streams) > 0 || c.StreamsFile != "") {
		errs = append(errs, fault("http", "is off, and streams of the server's own need it: give it an address, such as 127.0.0.1:8000"))
	}
	if n := len(c.Streams); n > c.Limits.MaxStreams {
		errs = append(errs, fault("limits.max_streams", "%d is less than the %d streams of the configuration", c.Limits.MaxStreams, n))
	}
	return errs
}

// streamEntry is a stream while it is read.
type streamEntry struct{ draft *streams.Draft }

// streams reads the list of streams. Relative paths start from the file's folder.
func (r *reader) streams(c *Config, node ast.Node) {
	for i, e := range entries(r, "streams", node, r.streamKey) {
		if e.draft == nil { // an empty entry
			e.draft = streams.NewDraft()
		}
		s, err := e.draft.Config()
		if err != nil {
			r.note(coded.Within(fmt.Sprintf("streams[%d]", i), err))
		}
		s.Rebase(r.dir)
		c.Streams = append(c.Streams, s)
	}
}

// streamKey reads a key of a stream. name is its path inside the stream.
func (r *reader) streamKey(e *streamEntry, path, name string, node ast.Node) {
	if e.draft == nil {
		e.draft = streams.NewDraft()
	}
	table := e.draft.Table()
	f, known := table.Find(name)
	switch {
	case table.IsSection(name):
		r.section(node, path, func(path, last string, node ast.Node) { r.streamKey(e, path, name+"."+last, node) })
	case !known:
		r.note(coded.Within(strings.TrimSuffix(path, "."+name), table.Unknown(name)))
	default:
		vs, ok := r.scalars(path, node)
		if !ok {
			return
		}
		texts := make([]string, len(vs))
		for i, v := range vs {
			texts[i] = v.text
		}
		if err := f.Set(texts...); err != nil {
			r.note(coded.Within(strings.TrimSuffix(path, "."+name), err))
		}
	}
}

// StreamSettings lists the settings of a stream: keys of an entry under streams
// in the file.
func StreamSettings() (out []Setting) {
	for _, f := range streams.NewDraft().Table().Fields() {
		doc := f.Help
		if len(f.Words) > 0 {
			doc += ": " + strings.Join(f.Words, ", ")
		}
		if f.Unset != "" {
			doc += " (" + f.Unset + ")"
		}
		out = append(out, Setting{Path: f.Path, Doc: doc, Default: f.Default, Switch: f.IsBool()})
	}
	return out
}
