package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/ingest/frames"
	"millrace/stream"
	"millrace/stream/buf"
)

const (
	schemeFolder = "folder"
	folderFPS    = 1        // pictures per second, unless fps is set
	maxPicture   = 64 << 20 // largest file of a picture, in bytes
)

func init() {
	Register(Kind{
		Name: schemeFolder, Schemes: []string{schemeFolder}, Examples: []string{"folder:pictures"}, FPS: true,
		Loop: []string{schemeFolder},
		New:  func() Settings { return new(Folder) },
		Relative: func(address, dir string) string {
			path := folderPath(address)
			if path == "" || filepath.IsAbs(path) {
				return address
			}
			return schemeFolder + ":" + filepath.Join(dir, path)
		},
	})
}

// Folder reads the pictures of a folder at a rate. Folder has no settings.
type Folder struct{}

// folderPath returns the path of an address, for example folder:/x or folder:///x.
func folderPath(address string) string {
	path := address[len(schemeFolder)+1:]
	if rest, ok := strings.CutPrefix(path, "//"); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return path
}

// Validate implements Settings.
func (c *Folder) Validate(address string, _ bool) error {
	switch path := folderPath(address); {
	case path == "":
		return stream.Errorf(stream.InvalidArgument, "source", "has no folder: want folder:PATH")
	case strings.IndexByte(path, 0) >= 0:
		return stream.Errorf(stream.InvalidArgument, "source", "contains a zero byte")
	}
	return nil
}

// Open implements Settings.
func (c *Folder) Open(_ context.Context, address string, e Env) (Reader, error) {
	f := &folder{path: folderPath(address), fps: cmp.Or(e.FPS, folderFPS), loop: e.Loop, memory: e.Memory}
	return f, f.list()
}

// folder reads the files with a picture's name extension in a folder, in the natural order of their names, without
// decoding.
type folder struct {
	path   string
	fps    float64
	loop   bool
	memory *buf.Pool

	names []string // still to be read
	sent  int64
}

// list reads the names of the pictures. Without pictures list returns an error.
func (f *folder) list() error {
	entries, err := os.ReadDir(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return stream.Errorf(stream.NotFound, "source", "the folder %s does not exist", f.path)
	case err != nil:
		return stream.Errorf(stream.Unavailable, "source", "the folder cannot be read: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if slices.Contains([]string{".jpg", ".jpeg", ".png", ".webp"}, strings.ToLower(filepath.Ext(name))) &&
			name[0] != '.' && !e.IsDir() {
			f.names = append(f.names, name)
		}
	}
	if len(f.names) == 0 {
		return stream.Errorf(stream.NotFound, "source",
			"the folder %s has no picture: want files whose names end in .jpg, .jpeg, .png or .webp", f.path)
	}
	slices.SortFunc(f.names, natural)
	return nil
}

// Info implements Reader.
func (f *folder) Info() Info { return Info{FPS: f.fps, Ends: true, Timed: true} }

// Close implements Reader.
func (f *folder) Close() error { return nil }

// Next implements Reader. A looping folder is listed again on each pass.
func (f *folder) Next() (stream.Frame, error) {
	if len(f.names) == 0 {
		if !f.loop {
			return stream.Frame{}, io.EOF
		}
		if err := f.list(); err != nil {
			return stream.Frame{}, err
		}
	}
	name := f.names[0]
	f.names = f.names[1:]
	out := stream.Frame{CaptureUS: int64(math.Round(float64(f.sent) / f.fps * 1e6)), Captured: true}
	f.sent++
	if err := f.read(name, &out); err != nil {
		return out, &Unreadable{fmt.Errorf("%s: %w", name, err)}
	}
	return out, nil
}

// read reads a picture into the frame. Without memory the frame has no lease.
func (f *folder) read(name string, to *stream.Frame) error {
	path := filepath.Join(f.path, name)
	st, err := os.Stat(path) // before opening, because opening a pipe may block
	switch {
	case err != nil:
		return cause(err)
	case !st.Mode().IsRegular():
		return stream.Errorf(stream.InvalidArgument, "", "is not a file")
	case st.Size() > maxPicture:
		return stream.Errorf(stream.InvalidArgument, "", "has %d bytes, more than the %d that a picture may have",
			st.Size(), maxPicture)
	}
	file, err := os.Open(path)
	if err != nil {
		return cause(err)
	}
	defer file.Close()
	lease, err := f.memory.Lease(int(st.Size()))
	if errors.Is(err, buf.ErrBudget) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(file, lease.Bytes()); err != nil {
		lease.Release()
		return cause(err)
	}
	if to.Codec, err = frames.Picture(lease.Bytes()); err != nil {
		lease.Release()
		return stream.Errorf(stream.InvalidArgument, "", "is not a JPEG, PNG or WebP picture")
	}
	to.Payload, to.Lease = lease.Bytes(), lease
	return nil
}

// cause removes the path from an error, because clients may not see the path.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return stream.Errorf(stream.Unavailable, "", "cannot be read: %w", err)
}

// natural compares names, with digits as numbers (a9 before a10) and everything else as bytes.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		n, m := digits(x), digits(y)
		if n > 0 && m > 0 {
			p, q := strings.TrimLeft(x[:n], "0"), strings.TrimLeft(y[:m], "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[n:], y[m:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	// Equal numbers may be written differently: 1 and 01.
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits counts the digits at the beginning of s.
func digits(s string) (n int) {
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
