package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// clip is a reader of frames at the given times; clip ends with err some time after the last frame.
type clip struct {
	info  Info
	times []time.Duration
	lasts time.Duration
	err   error
}

func (c *clip) Info() Info   { return c.info }
func (c *clip) Close() error { return nil }
func (c *clip) Next() (stream.Frame, error) {
	if len(c.times) == 0 {
		time.Sleep(c.lasts)
		return stream.Frame{}, c.err
	}
	f := stream.Frame{CaptureUS: c.times[0].Microseconds(), Lease: new(buf.Buf)}
	c.times = c.times[1:]
	return f, nil
}

// The frames of a video arrive at the video's own times and rate; a longer step between two frames is a jump.
func TestPacedFrames(t *testing.T) {
	const ms, h = time.Millisecond, time.Hour
	for name, c := range map[string]struct {
		info  Info
		paced bool
		times []time.Duration
		want  []time.Duration
	}{
		"at their times": {Info{Ends: true}, true, []time.Duration{h, h + 100*ms, h + 300*ms},
			[]time.Duration{0, 100 * ms, 300 * ms}},
		"with a jump": {Info{Ends: true}, true, []time.Duration{0, 100 * ms, h, h + 100*ms, 3 * h,
			3*h + 50*ms}, []time.Duration{0, 100 * ms, 100 * ms, 200 * ms, 200 * ms, 250 * ms}},
		"with the longest pause": {Info{Ends: true}, true, []time.Duration{0, maxPause, 2 * maxPause},
			[]time.Duration{0, maxPause, 2 * maxPause}},
		"and longer": {Info{Ends: true}, true, []time.Duration{0, maxPause + ms}, []time.Duration{0, 0}},
		"of a low rate": {Info{Ends: true, FPS: 0.05}, true,
			[]time.Duration{0, 40 * time.Second, 40*time.Second + 41*time.Second},
			[]time.Duration{0, 40 * time.Second, 40 * time.Second}},
		"of a high rate": {Info{Ends: true, FPS: 50}, true, []time.Duration{0, maxPause},
			[]time.Duration{0, maxPause}},
		"not paced": {Info{Ends: true}, false, []time.Duration{0, 100 * ms}, []time.Duration{0, 0}},
		"live":      {Info{}, true, []time.Duration{0, 100 * ms}, []time.Duration{0, 0}},
		"timed by themselves": {Info{Timed: true, Ends: true}, false, []time.Duration{0, 100 * ms},
			[]time.Duration{0, 100 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var got []time.Duration
				s := New(Options{
					Open: func(context.Context) (Reader, error) {
						return &clip{info: c.info, times: c.times, err: final{io.ErrUnexpectedEOF}}, nil
					},
					Frame: func(f stream.Frame) {
						got = append(got, time.Since(begin))
					}, Paced: func() bool { return c.paced },
				})
				if err := s.Run(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) || !slices.Equal(got, c.want) {
					t.Errorf("at %v, want %v; %v", got, c.want, err)
				}
			})
		})
	}
}

// A source that ran for a while is reopened soon after a failure; other failing sources are reopened after increasing
// waits.
func TestWaitsOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var opened, ended []time.Time
		const steady = 10 * time.Second
		lasts := []time.Duration{0, 0, steady - 1, 0, steady, 0}
		s := New(Options{
			Open: func(context.Context) (Reader, error) {
				opened = append(opened, time.Now())
				n := len(opened) - 1
				if n == len(lasts) {
					cancel()
					return nil, ctx.Err()
				}
				ended = append(ended, time.Now().Add(lasts[n]))
				return &clip{lasts: lasts[n], err: &video.Error{Kind: video.Stalled}}, nil
			},
		})
		_ = s.Run(ctx)
		for i, most := range []time.Duration{1, 2, 4, 8, 1, 2} {
			most *= time.Second
			if wait := opened[i+1].Sub(ended[i]); wait < most/2 || wait > most {
				t.Errorf("wait %d is %v, want %v to %v", i, wait, most/2, most)
			}
		}
		if st := s.Status(); st.Restarts != 6 {
			t.Errorf("%+v", st)
		}
	})
}

// A source whose failure probably persists is retried rarely.
func TestPauses(t *testing.T) {
	for _, c := range []struct {
		err    error
		seldom bool
	}{
		{&video.Error{Kind: video.Auth}, true}, {&video.Error{Kind: video.NotVideo}, true},
		{&video.Error{Kind: video.Stalled}, false},
		{errors.New("x"), false}, {stream.Errorf(stream.Unavailable, "", "x"), false},
	} {
		s := New(Options{MinWait: time.Second, MaxWait: 100 * time.Second})
		if d := s.pause(false, c.err); (d >= 50*time.Second) != c.seldom || d > 100*time.Second {
			t.Errorf("%v: %v", c.err, d)
		}
	}
}

func TestFolderPaths(t *testing.T) {
	for address, want := range map[string]string{
		"folder:x": "x", "folder:/x": "/x", "folder:///x": "/x", "folder://x": "//x", "folder:": "",
	} {
		if got := folderPath(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	for address, ok := range map[string]bool{"folder:x": true, "folder:": false, "folder:\x00": false,
		"folder:a\x00": false} {
		if err := (&Folder{}).Validate(address, false); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// A picture in a folder may have maxPicture bytes at most; this test has no memory for a picture of maxPicture bytes.
func TestLargestPicture(t *testing.T) {
	dir := t.TempDir()
	f := &folder{path: dir, memory: buf.NewPool(1 << 20)}
	for size, ok := range map[int64]bool{maxPicture: true, maxPicture + 1: false} {
		if err := os.WriteFile(filepath.Join(dir, "a.jpg"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "a.jpg"), size); err != nil {
			t.Fatal(err)
		}
		var to stream.Frame
		if err := f.read("a.jpg", &to); (err == nil) != ok || to.Lease != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestTransports checks the permitted transports by source and by request or configuration.
func TestTransports(t *testing.T) {
	for _, c := range []struct {
		transport, address string
		public             bool
		code               stream.Code
		is                 string
	}{
		{"", "http://h/", true, "", ""}, {"", "rtsp://h/", true, "", "tcp"}, {"tcp", "rtsp://h/", true, "", "tcp"},
		{"tcp", "rtsps://h/", true, "", "tcp"},
		{"udp", "rtsp://h/", false, "", "udp"}, {"udp", "rtsp://h/", true, stream.PermissionDenied, "udp"},
		{"udp", "rtsps://h/", false, stream.InvalidArgument, "udp"},
		{"tcp", "http://h/", false, stream.InvalidArgument, ""}, {"udp", "clip.mp4", false, stream.InvalidArgument,
			""}, {"", "nonsense://h/", false, stream.InvalidArgument, ""},
	} {
		v := &Video{Transport: c.transport}
		if err := v.Validate(c.address, c.public); stream.CodeOf(err) != c.code || v.transport(c.address) != c.is {
			t.Errorf("%+v: %v, %q", c, err, v.transport(c.address))
		}
		want := "[]"
		if c.transport != "" {
			want = "[-rtsp_transport " + c.transport + "]"
		}
		if got := fmt.Sprint(v.options(c.address, Env{}).InputArgs); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
}

func TestRelativeFiles(t *testing.T) {
	for address, want := range map[string]string{
		"clip.mp4": "/dir/clip.mp4", "./clip.mp4": "/dir/clip.mp4", "/clip.mp4": "/clip.mp4",
		"file:clip.mp4":     "file:clip.mp4",
		"http://h/clip.mp4": "http://h/clip.mp4", "nonsense://h": "nonsense://h",
	} {
		if got := relativeFile(address, "/dir"); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
