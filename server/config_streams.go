package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"millrace/ingest/streams"
	"millrace/internal/video"
	"millrace/stream"
)

// StreamEntry is one stream of the configuration: a camera that the server
// watches itself.
type StreamEntry struct {
	streams.Config
	MaxSize Size // of sinks.file

	dir string // that a relative path starts from; "" = the working directory
}

// streamKeys are the settings of a stream.
var streamKeys = []key[StreamEntry]{
	{"name", "of the stream", func(s *StreamEntry) any { return &s.Name }},
	{"source", "a file, a device, exec:PROGRAM or an address", func(s *StreamEntry) any { return &s.Source }},
	{"rtsp_transport", "of an rtsp source: tcp or udp (tcp)", func(s *StreamEntry) any { return &s.Transport }},
	{"model", "that sees its frames", func(s *StreamEntry) any { return &s.Model }},
	{"version", "of the model (any)", func(s *StreamEntry) any { return &s.Version }},
	{"policy", "latest or every (latest)", func(s *StreamEntry) any { return &s.Policy }},
	{"max_age_ms", "a frame that would be answered older is dropped", func(s *StreamEntry) any { return &s.MaxAgeMS }},
	{"deadline_ms", "the same, for each frame", func(s *StreamEntry) any { return &s.DeadlineMS }},
	{"max_fps", "frames that come sooner are dropped", func(s *StreamEntry) any { return &s.MaxFPS }},
	{"window", "frames on their way at once", func(s *StreamEntry) any { return &s.Window }},
	{"priority", "normal, high or low", func(s *StreamEntry) any { return &s.Priority }},
	{"fps", "frames taken from the source a second, at most", func(s *StreamEntry) any { return &s.FPS }},
	{"width", "pixels that frames are scaled to", func(s *StreamEntry) any { return &s.Width }},
	{"loop", "a video with an end starts over", func(s *StreamEntry) any { return &s.Loop }},
	{"paused", "no frame is analysed until it is resumed", func(s *StreamEntry) any { return &s.Paused }},
	{"sinks.file", "JSON lines are appended to it", func(s *StreamEntry) any { return &s.Sinks.File }},
	{"sinks.max_size", "of the file, which then is put aside; three are kept (64MiB)", func(s *StreamEntry) any { return &s.MaxSize }},
	{"sinks.webhook", "an address that results are posted to", func(s *StreamEntry) any { return &s.Sinks.Webhook }},
	{"sinks.webhook_secret", "signs what is posted", func(s *StreamEntry) any { return &s.Sinks.WebhookSecret }},
}

// streams returns what the adapter is given. Relative paths start from the
// file's folder.
func (c Config) streams() []streams.Config {
	out := make([]streams.Config, len(c.Streams))
	for i, s := range c.Streams {
		s.Sinks.MaxSize = int64(s.MaxSize)
		s.Sinks.File = s.below(s.Sinks.File)
		if scheme, err := video.ClassifyURL(s.Source); err == nil && scheme == video.SchemeFile && !strings.HasPrefix(s.Source, "file:") {
			s.Source = s.below(s.Source)
		}
		out[i] = s.Config
	}
	return out
}

func (s *StreamEntry) below(path string) string {
	if path == "" || s.dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.dir, path)
}

func (c Config) validateStreams() (errs []error) {
	first, writes := map[string]int{}, map[string]int{}
	for i, s := range c.streams() {
		at := fmt.Sprintf("streams[%d]", i)
		var e *stream.Error
		if err := s.Validate(); errors.As(err, &e) {
			errs = append(errs, &stream.Error{Code: e.Code, Field: at + "." + e.Field, Msg: e.Msg, Err: e.Err})
		}
		if j, twice := first[s.Name]; twice {
			errs = append(errs, fault(at+".name", "%q is the name of streams[%d] already", s.Name, j))
		} else {
			first[s.Name] = i
		}
		if s.Sinks.File == "" {
			continue
		}
		file := filepath.Clean(s.Sinks.File)
		if j, twice := writes[file]; twice {
			errs = append(errs, fault(at+".sinks.file", "%q is that of streams[%d] already: give each its own", s.Sinks.File, j))
		}
		writes[file] = i
	}
	if c.HTTP == Off && (len(c.Streams) > 0 || c.StreamsFile != "") {
		errs = append(errs, fault("http", "is off, and streams of the server's own need it: give it an address, such as 127.0.0.1:8000"))
	}
	if n := len(c.Streams); n > c.Limits.MaxStreams {
		errs = append(errs, fault("limits.max_streams", "%d is less than the %d streams of the configuration", c.Limits.MaxStreams, n))
	}
	return errs
}

// streams reads the list of streams.
func (r *reader) streams(c *Config, node ast.Node) {
	c.Streams = append(c.Streams, entries(r, "streams", node, r.streamKey)...)
}

// streamKey reads a key of a stream. name is its path inside the stream.
func (r *reader) streamKey(s *StreamEntry, path, name string, node ast.Node) {
	if len(below(paths(streamKeys), name+".")) > 0 {
		r.section(node, path, func(path, last string, node ast.Node) { r.streamKey(s, path, name+"."+last, node) })
		return
	}
	i := slices.IndexFunc(streamKeys, func(k key[StreamEntry]) bool { return k.path == name })
	if i < 0 {
		r.note(unknown(path, name, paths(streamKeys)))
		return
	}
	if vs, ok := r.scalars(path, node); ok {
		if err := assign(streamKeys[i].at(s), vs); err != nil {
			r.fail(path, nil, "%w", err)
		}
	}
}

// StreamSettings lists the settings of a stream: keys of an entry under streams
// in the file.
func StreamSettings() []Setting {
	out := make([]Setting, len(streamKeys))
	for i, k := range streamKeys {
		out[i] = Setting{Path: k.path, Doc: k.doc}
	}
	return out
}
