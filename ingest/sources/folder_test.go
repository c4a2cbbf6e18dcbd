package sources_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/stream"
	"millrace/stream/buf"
)

// pictureFolder makes a folder with files of these names; the prefix of a name before a colon selects the content.
func pictureFolder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	var p bytes.Buffer
	if err := png.Encode(&p, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data := picture(16)
		if what, rest, ok := strings.Cut(name, ":"); ok {
			name, data = rest, map[string][]byte{"png": p.Bytes(), "words": []byte("no picture"), "empty": nil}[what]
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// readFolder reads to the end, or at most so many frames, and returns the sizes of the pictures; -1 for an unreadable
// picture.
func readFolder(t *testing.T, r sources.Reader, most int) (sizes []int, frames []stream.Frame) {
	t.Helper()
	for len(sizes) < most {
		f, err := r.Next()
		switch err := err.(type) {
		case nil:
			sizes = append(sizes, len(f.Payload))
			f.Lease.Release()
		case *sources.Unreadable:
			sizes = append(sizes, -1)
		default:
			if err != io.EOF {
				t.Fatal(err)
			}
			return sizes, frames
		}
		if !f.Captured {
			t.Errorf("frame %d has no capture time", len(frames))
		}
		frames = append(frames, f)
	}
	return sizes, frames
}

func openFolder(t *testing.T, address string, e sources.Env) (sources.Reader, error) {
	t.Helper()
	e.Memory = buf.NewPool(0)
	t.Cleanup(func() {
		if n := e.Memory.Stats().Leases; n != 0 {
			t.Errorf("%d leases left", n)
		}
	})
	s, err := sources.Settle(address, nil)
	if err == nil {
		err = s.Validate(address, false)
	}
	if err != nil {
		return nil, err
	}
	return s.Open(t.Context(), address, e)
}

// Pictures are read in the natural order of their names, at their rate, without decoding; other files are skipped,
// and an unreadable picture is not the end.
func TestFolder(t *testing.T) {
	dir := pictureFolder(t, "a10.jpg", "png:a9.PNG", "a2.jpeg", "words:a3.jpg", "empty:a4.webp", "words:notes.txt",
		".hidden.jpg")
	if err := os.Mkdir(filepath.Join(dir, "b.jpg"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "a1.jpg")); err != nil {
		t.Fatal(err)
	}
	r, err := openFolder(t, "folder:"+dir, sources.Env{FPS: 4})
	if err != nil {
		t.Fatal(err)
	}
	sizes, frames := readFolder(t, r, 100)
	jpeg := len(picture(16))
	pngSize, _ := os.Stat(filepath.Join(dir, "a9.PNG"))
	if want := []int{-1, jpeg, -1, -1, int(pngSize.Size()), jpeg}; !slices.Equal(sizes, want) {
		t.Fatalf("%v, want %v", sizes, want)
	}
	for i, f := range frames {
		if f.CaptureUS != int64(i)*250_000 {
			t.Errorf("frame %d has the time %d", i, f.CaptureUS)
		}
	}
	if frames[1].Codec != stream.JPEG || frames[4].Codec != stream.PNG {
		t.Errorf("%v %v", frames[1].Codec, frames[4].Codec)
	}
}

// A looping folder is listed again at its end; the times continue.
func TestFolderLoops(t *testing.T) {
	dir := pictureFolder(t, "1.jpg", "2.jpg")
	r, err := openFolder(t, "folder://"+dir, sources.Env{Loop: true, FPS: 10})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = readFolder(t, r, 2)
	if err := os.Remove(filepath.Join(dir, "2.jpg")); err != nil {
		t.Fatal(err)
	}
	_, frames := readFolder(t, r, 2)
	if frames[0].CaptureUS != 200_000 || frames[1].CaptureUS != 300_000 {
		t.Errorf("%d %d", frames[0].CaptureUS, frames[1].CaptureUS)
	}
}

// The source waits while its folder is missing or empty, reads the pictures at the requested rate, counts unreadable
// pictures, and ends.
func TestFolderSource(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	address := "folder:" + dir
	settings, err := sources.Settle(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	memory := buf.NewPool(0)
	var unreadable []uint64
	var given []uint64
	s := sources.New(sources.Options{
		Address: address, MinWait: time.Millisecond, MaxWait: 2 * time.Millisecond,
		Open: func(ctx context.Context) (sources.Reader, error) {
			return settings.Open(ctx, address, sources.Env{Memory: memory, FPS: 50})
		},
		Frame:      func(f stream.Frame) { given = append(given, f.Seq); f.Lease.Release() },
		Unreadable: func(f stream.Frame, _ error) { unreadable = append(unreadable, f.Seq) },
	})
	over := make(chan error, 1)
	begun := time.Now()
	go func() { over <- s.Run(t.Context()) }()
	await := func(text string) {
		t.Helper()
		for limit := time.Now().Add(patience); ; {
			if st := s.Status(); st.Err != nil && strings.Contains(st.Err.Error(), text) {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("not seen: %s: %+v", text, s.Status())
			}
			<-time.After(time.Millisecond)
		}
	}
	await("does not exist")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	await("has no picture")
	full := pictureFolder(t, "0.jpg", "1.jpg", "words:2.jpg", "3.jpg", "4.jpg")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(full, dir); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 80*time.Millisecond {
		t.Errorf("five pictures at 50 a second took %v", took)
	}
	if st := s.Status(); st.State != sources.Ended || st.Frames != 5 ||
		fmt.Sprint(given, unreadable) != "[0 1 3 4] [2]" {
		t.Errorf("%+v: %v, unreadable %v", st, given, unreadable)
	}
	if n := memory.Stats().Leases; n != 0 {
		t.Errorf("%d leases left", n)
	}
}

func TestFolderRefusals(t *testing.T) {
	if _, err := openFolder(t, "folder:", sources.Env{}); stream.CodeOf(err) != stream.InvalidArgument {
		t.Errorf("%v", err)
	}
	if err := sources.Check("source", "folder:/tmp"); stream.CodeOf(err) != stream.PermissionDenied ||
		!strings.HasPrefix(err.Error(), "source: folder: ") {
		t.Errorf("%v", err)
	}
	if _, err := sources.Settle("folder:/tmp", &sources.Video{}); stream.CodeOf(err) != stream.InvalidArgument {
		t.Errorf("%v", err)
	}
}
