package streams

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"millrace/internal/testneeds"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/stream/buf"
)

// testVideo returns a video with one place for its encoder, and the number of places in use.
func testVideo(t *testing.T) (*encodedVideo, *int) {
	held := 0
	return &encodedVideo{stream: "door", ctx: t.Context(), memory: buf.NewPool(0), counts: &videoCounts{},
		log: slog.New(slog.DiscardHandler), wake: func() {}, free: func() { held-- }, take: func() error {
			if held == 1 {
				return stream.Errorf(stream.Overloaded, "limits.max_encoders", "full")
			}
			held++
			return nil
		}}, &held
}

// received returns the waiting messages of a watcher: texts, "header", and the names of fragments.
func received(w *watcher) (list []string) {
	for {
		select {
		case line := <-w.lines:
			w.bytes.Add(-int64(len(line)))
			switch {
			case isFragment(line):
				list = append(list, string(line[8:]))
			case isText(line):
				var m struct {
					Mime  *string
					Lost  int
					Error *struct{ Code string }
				}
				_ = json.Unmarshal(line, &m)
				switch {
				case m.Error != nil:
					list = append(list, "error "+m.Error.Code)
				case m.Mime != nil:
					list = append(list, fmt.Sprintf("begin %d", m.Lost))
				}
			default:
				list = append(list, "header")
			}
		default:
			return list
		}
	}
}

// Watchers begin at a key frame, a new watcher at the newest key frame. A watcher that is slow by more than a group, or
// by too many bytes, loses all waiting fragments, and begins again at the next key frame with their number.
func TestSlowWatchersOfVideo(t *testing.T) {
	v, _ := testVideo(t)
	header := &video.MP4Header{Bytes: []byte("\x00\x00\x00\x08ftyp")}
	send := func(names ...string) {
		for _, name := range names {
			v.send(video.Fragment{Header: header, Key: name[0] == 'K', Data: []byte("\x00\x00\x00\x08moof" + name)})
		}
	}
	watch := func() *watcher {
		w, err := v.watch()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	check := func(who string, w *watcher, want ...string) {
		t.Helper()
		if got := received(w); !slices.Equal(got, want) {
			t.Errorf("%s received %q, want %q", who, got, want)
		}
	}
	early := watch()
	send("p0", "K1", "p1")
	late := watch()
	check("the first watcher", early, "begin 0", "header", "K1", "p1")
	send("p2")
	check("the first watcher", early, "p2")
	check("a watcher in the middle of a group", late, "begin 0", "header", "K1", "p1", "p2")
	send("K2", "p3", "p4", "K3", "p5")
	check("a watcher behind by a group", late, "K2", "p3", "p4", "K3", "p5")
	send("K4", "p6", "p7", "K5", "p8", "p9")
	check("the first watcher", early, "begin 5", "header", "K4", "p6", "p7", "K5", "p8", "p9")
	received(late)
	large := string(bytes.Repeat([]byte("p"), videoBytes/2))
	send(large, large, "p1")
	check("a watcher of large pictures", late)
	if w := watch(); len(received(w)) != 0 {
		t.Error("a group of too many bytes is kept for new watchers")
	}
	send("K6", "p1")
	check("a watcher of large pictures", late, "begin 3", "header", "K6", "p1")
	header = &video.MP4Header{Bytes: header.Bytes}
	send("K7")
	check("with another encoder", late, "begin 0", "header", "K7")
	for i := range videoRoom + 9 {
		send(fmt.Sprint("p", i))
	}
	if w := watch(); len(received(w)) != 0 {
		t.Error("a group of too many pictures is kept for new watchers")
	}
	if n := len(late.lines); n > videoRoom || !late.waits {
		t.Errorf("%d messages wait", n)
	}
	if lost := v.counts.lost.Load(); lost < videoRoom {
		t.Errorf("%d lost", lost)
	}
}

// A video has a place among the encoders from its first watcher until some time after its last watcher.
func TestPlacesOfEncoders(t *testing.T) {
	v, held := testVideo(t)
	one, err := v.watch()
	two, again := v.watch()
	if err != nil || again != nil || *held != 1 {
		t.Fatalf("%v %v, %d places", err, again, *held)
	}
	other := *held
	v.leave(one)
	if v.leave(two); !v.wanted(time.Now()) || *held != other {
		t.Error("no grace time")
	}
	if three, err := v.watch(); err != nil {
		t.Error(err)
	} else {
		v.leave(three)
	}
	if v.wanted(time.Now().Add(videoGrace)) || *held != 0 {
		t.Errorf("%d places after the grace time", *held)
	}
	*held = 1 // another video's
	if _, err := v.watch(); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("no place: %v", err)
	}
	*held = 0
	w, err := v.watch()
	if err != nil {
		t.Fatal(err)
	}
	v.close()
	if _, more := <-w.lines; more || v.wanted(time.Now()) || *held != 0 {
		t.Error("the video goes on after its end")
	}
	if _, err := v.watch(); err != errStreamEnded {
		t.Errorf("after the end: %v", err)
	}
}

// An encoder that dies starts again after a pause, and its watchers are told.
func TestEncoderThatDies(t *testing.T) {
	v, _ := testVideo(t)
	dir := t.TempDir()
	v.options.FFmpeg = filepath.Join(dir, "ffmpeg")
	script := fmt.Sprintf("#!/bin/sh\n[ -e %[1]s/again ] && exec %[2]s \"$@\"\n: > %[1]s/again\nexit 3\n", dir,
		testneeds.Program(t, "ffmpeg"))
	testneeds.WriteProgram(t, v.options.FFmpeg, script)
	w, err := v.watch()
	if err != nil {
		t.Fatal(err)
	}
	defer v.end()
	write := func(width, height int) { v.write(make([]byte, 3*width*height), width, height, stream.Now()) }
	write(64, 48)
	write(64, 48) // in the pause
	if got := received(w); !slices.Equal(got, []string{"error internal"}) || v.counts.failures.Load() != 1 {
		t.Errorf("%q, %d failures", got, v.counts.failures.Load())
	}
	v.retry = time.Time{}
	write(64, 48)
	if got := received(w); len(got) != 3 || got[0] != "begin 0" || got[1] != "header" {
		t.Errorf("%q", got)
	}
	write(32, 24)
	if got := received(w); len(got) != 3 || got[0] != "begin 0" || got[1] != "header" {
		t.Errorf("another size: %q", got)
	}
	if n := v.counts.encoders.Load(); n != 1 {
		t.Errorf("%d encoders", n)
	}
}
