package sources_test

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/buf"
)

// examples creates the files named in the examples of sources in a temporary folder, and makes the folder the working
// directory.
func examples(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("clip.mp4", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var p bytes.Buffer
	if err := png.Encode(&p, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("pictures", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("pictures/1.png", p.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every kind of source satisfies the documentation of Kind, Settings and Reader.
func TestEverySource(t *testing.T) {
	examples(t)
	for _, k := range sources.Kinds() {
		if len(k.Examples) == 0 {
			t.Errorf("%s has no example", k.Name)
		}
		for _, address := range k.Examples {
			if _, of, err := sources.Classify(address); err != nil || of.Name != k.Name {
				t.Errorf("%s is an example of %s, and of the kind %+v, %v", address, k.Name, of, err)
				continue
			}
			if err := k.New().Validate(address, false); err != nil {
				t.Errorf("%s: %v", address, err)
			}
			if k.Relative != nil && k.Relative(k.Relative(address, "/x"), "/y") != k.Relative(address, "/x") {
				t.Errorf("%s: an address that starts from a folder starts from another one", address)
			}
			for name, memory := range map[string]*buf.Pool{"with memory": buf.NewPool(0),
				"without memory": buf.NewPool(1)} {
				t.Run(address+" "+name, func(t *testing.T) { endsWithContext(t, k, address, memory) })
			}
		}
	}
}

// endsWithContext runs a source until its first frame or first failure, and then ends the source.
func endsWithContext(t *testing.T, k sources.Kind, address string, memory *buf.Pool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := k.New()
	before := setting.TableOf("", s).Object()
	o := sources.Options{
		Address: address,
		Open: func(ctx context.Context) (sources.Reader, error) {
			return sources.Open(ctx, s, address, sources.Env{Memory: memory})
		},
		Frame:      func(f stream.Frame) { f.Lease.Release(); cancel() },
		Unreadable: func(stream.Frame, error) { cancel() },
		Lost:       func(stream.Frame) { cancel() },
		Failed:     func(error) { cancel() },
	}
	over := make(chan error, 1)
	go func() { over <- sources.New(o).Run(ctx) }()
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatal("does not end with its context")
	}
	if n := memory.Stats().Leases; n != 0 {
		t.Errorf("%d leases left", n)
	}
	if after := setting.TableOf("", s).Object(); len(after) != len(before) {
		t.Errorf("opening it has set %v", after)
	}
}

// A timed source without memory loses its frames at their times, and ends with its context.
func TestLostFramesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun, lost := time.Now(), 0
		err := sources.New(sources.Options{
			Address: "timed:", Open: func(context.Context) (sources.Reader, error) { return &timed{}, nil },
			Frame: func(stream.Frame) { t.Error("a frame without memory") },
			Lost: func(stream.Frame) {
				if lost++; lost == 4 {
					cancel()
				}
			},
		}).Run(ctx)
		if took := time.Since(begun); err != context.Canceled || lost != 4 || took != 300*time.Millisecond {
			t.Errorf("%d lost within %v, %v", lost, took, err)
		}
	})
}

// timed gives frames without memory, ten a second.
type timed struct{ given int64 }

func (r *timed) Info() sources.Info { return sources.Info{FPS: 10, Timed: true} }
func (r *timed) Close() error       { return nil }
func (r *timed) Next() (stream.Frame, error) {
	r.given++
	return stream.Frame{CaptureUS: r.given * 100_000}, nil
}
