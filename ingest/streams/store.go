package streams

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"millrace/internal/httpd"
	"millrace/internal/textfile"
	"millrace/stream"
	"millrace/stream/coded"
)

// Store keeps the streams added by requests, with later changes, in a file (streams_file), so that the streams start
// again with the server. Each change replaces the whole file. Only its owner may read the file, since the file
// contains passwords of cameras. A nil *Store keeps nothing.
type Store struct {
	path       string
	configured []Config // streams of the configuration
	max        int      // maximum of own and streams together, since the next start would run both

	mu      sync.Mutex
	streams []*Config // in the order of addition
}

// maxStore is the largest file of streams, in bytes.
const maxStore = 64 << 20

// storeFile is the content of the file.
type storeFile struct {
	Streams []*Config `json:"streams"`
}

// OpenStore reads the file at path, if the file exists, and writes the file, so that an unwritable folder is noticed
// at the start. own are the streams of the configuration, most is limits.max_streams. For path "" OpenStore returns
// nil.
func OpenStore(path string, own []Config, most int) (*Store, error) {
	if path == "" {
		return nil, nil
	}
	fault := func(err error) error {
		return stream.Errorf(stream.InvalidArgument, "streams_file", "%s: %w", path, err)
	}
	text, err := textfile.Read(path, maxStore)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, stream.Errorf(stream.InvalidArgument, "streams_file", "%w", err)
	}
	k := &Store{path: path, configured: own, max: most}
	if err == nil {
		if k.streams, err = parseStore(text); err != nil {
			return nil, fault(fmt.Errorf("%w (correct it, or move it away to start without its streams)", err))
		}
	}
	for i, c := range k.streams {
		if slices.ContainsFunc(own, func(o Config) bool { return o.Name == c.Name }) {
			return nil, fault(fmt.Errorf("streams[%d].name: %q is the name of a stream of the configuration too: "+
				"remove one of them", i, c.Name))
		}
	}
	if n := len(own) + len(k.streams); n > most {
		return nil, fault(fmt.Errorf("with those of the configuration there are %d streams, but limits.max_streams "+
			"is %d: raise it", n, most))
	}
	return k, k.save(k.streams)
}

// parseStore strictly parses a file written by save or by a person.
func parseStore(text []byte) ([]*Config, error) {
	var file struct {
		Streams []map[string]any `json:"streams"`
	}
	if err := httpd.StrictJSON(text, &file); err != nil {
		return nil, fmt.Errorf("is not in the form that the server writes: %w", err)
	}
	var out []*Config
	names := map[string]bool{}
	for i, object := range file.Streams {
		if object == nil {
			return nil, fmt.Errorf("streams[%d] is empty", i)
		}
		c, err := parse(object)
		if err == nil && names[c.Name] {
			err = stream.Errorf(stream.InvalidArgument, "name", "%q is given twice", c.Name)
		}
		if err != nil {
			return nil, coded.PrefixField(fmt.Sprintf("streams[%d]", i), err)
		}
		names[c.Name] = true
		out = append(out, &c)
	}
	return out, nil
}

// setConfigured takes the streams of a configuration after a reload.
func (k *Store) setConfigured(own []Config) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.configured = own
}

// list returns the streams in the store.
func (k *Store) list() []*Config {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.streams)
}

// add adds a stream. add returns the entry for later changes and removal of the stream, or an error when storing
// failed.
func (k *Store) add(c Config) (*Config, error) {
	if k == nil {
		return nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case slices.ContainsFunc(k.streams, func(o *Config) bool { return o.Name == c.Name }):
		return nil, nameConflict(c.Name)
	case slices.ContainsFunc(k.configured, func(o Config) bool { return o.Name == c.Name }):
		return nil, stream.Errorf(stream.Conflict, "name", "%q is the name of a stream of the configuration, which "+
			"starts again with the server: choose another, or bring that one back with `millrace streams reset %s`",
			c.Name, c.Name)
	case len(k.configured)+len(k.streams) >= k.max:
		return nil, stream.Errorf(stream.Overloaded, "limits.max_streams", "%d streams start again with the server, "+
			"and that is the limit: delete one that was added by a request, or raise the setting", k.max)
	}
	return &c, k.replace(append(slices.Clone(k.streams), &c))
}

// change stores a change of a stream that is still in the store.
func (k *Store) change(of *Config, next Config) error {
	if of == nil { // for a nil store too
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.streams, of) {
		return nil
	}
	before := *of
	*of = next
	err := k.replace(k.streams)
	if err != nil {
		*of = before
	}
	return err
}

// remove removes a stream.
func (k *Store) remove(of *Config) error {
	if of == nil { // for a nil store too
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.replace(slices.DeleteFunc(slices.Clone(k.streams), func(c *Config) bool { return c == of }))
}

// replace stores next, if writing succeeds.
func (k *Store) replace(next []*Config) error {
	if err := k.save(next); err != nil {
		return stream.Errorf(stream.Unavailable, "", "%w", err)
	}
	k.streams = next
	return nil
}

func (k *Store) save(list []*Config) (err error) {
	defer func() {
		if err != nil {
			err = stream.Errorf(stream.Unavailable, "streams_file", "cannot be written: %w", err)
		}
	}()
	text, err := json.MarshalIndent(storeFile{append([]*Config{}, list...)}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(k.path), ".streams-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // no effect after the rename
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), k.path)
}
