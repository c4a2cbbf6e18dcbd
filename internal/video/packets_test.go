package video

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// readPackets reads a video to its end. The packets have copies of their data.
func readPackets(t *testing.T, o Options) (list []Fragment, frames []time.Duration) {
	t.Helper()
	o.Packets = func(p Fragment) {
		p.Data = bytes.Clone(p.Data)
		list = append(list, p)
	}
	r := open(t, o)
	var data []byte
	for {
		f, err := r.Next(data[:cap(data)])
		if err == io.EOF {
			break
		}
		if err != nil && strings.Contains(err.Error(), "bytes of memory") {
			data = make([]byte, r.FrameSize())
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		data = f.Data
		frames = append(frames, f.PTS)
	}
	_ = r.Close() // the last packets have come
	return list, frames
}

// The packets of a video with B-frames have the times of its frames, and a file of the packets from a key frame on is
// decoded without an error.
func TestPackets(t *testing.T) {
	src := clip(t, "b.mp4", "-f", "lavfi", "-i", "testsrc2=size=160x120:rate=25:duration=3", "-c:v", "libx264",
		"-g", "25", "-bf", "2", "-pix_fmt", "yuv420p")
	list, frames := readPackets(t, Options{URL: src})
	if len(list) != 75 || len(frames) != 75 || list[0].Header.Codec != "avc1" {
		t.Fatalf("%d packets of %d frames", len(list), len(frames))
	}
	shown := map[time.Duration]bool{}
	keys := 0
	for i, p := range list {
		shown[p.PTS.Round(time.Millisecond)] = true
		if p.Key {
			keys++
		}
		if p.Key != (i%25 == 0) || p.DTS > p.PTS || p.Length != 40*time.Millisecond {
			t.Errorf("packet %d: %v %v %v %v", i, p.Key, p.PTS, p.DTS, p.Length)
		}
	}
	for _, at := range frames {
		if !shown[at.Round(time.Millisecond)] {
			t.Errorf("no packet has the time of the frame at %v", at)
		}
	}
	file := bytes.Clone(list[0].Header.Bytes)
	for _, p := range list[25:] {
		PutTime(p.Data, p.TimeAt(), p.Ticks-list[25].Ticks)
		file = append(file, p.Data...)
	}
	path := filepath.Join(t.TempDir(), "from.mp4")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := ffmpeg(t, "-xerror", "-i", path, "-f", "null", "-"); len(said) > 0 {
		t.Errorf("%s", said)
	}
	if got := times(t, path); len(got) != 50 || math.Abs(got[49].Seconds()-got[0].Seconds()-49*.04) > .001 {
		t.Errorf("%d frames: %v", len(got), got)
	}
}

// A codec without a place in MP4 has frames all the same.
func TestPacketsOfOtherCodec(t *testing.T) {
	src := clip(t, "v.webm", "-f", "lavfi", "-i", "testsrc2=size=160x120:rate=25:duration=1", "-c:v", "libvpx")
	if list, frames := readPackets(t, Options{URL: src}); len(list) != 0 || len(frames) != 25 {
		t.Errorf("%d packets, %d frames", len(list), len(frames))
	}
}

// Packets keep the times of frames when the timeline filter moves the times.
func TestPacketsFollowFrames(t *testing.T) {
	k := &packets{}
	k.began(60 * time.Second)
	k.last.Store(int64(61 * time.Second))
	k.any.Store(true)
	k.follow(time.Second)
	if s := time.Duration(k.shift.Load()); s != -60*time.Second {
		t.Error(s)
	}
	k.last.Store(int64(130 * time.Second)) // the source's clock was set
	k.follow(2 * time.Second)
	if s := time.Duration(k.shift.Load()); s != -128*time.Second {
		t.Error(s)
	}
}

// Packets before the first frame of an RTSP source wait for the origin of its times.
func TestPacketsWaitForOrigin(t *testing.T) {
	var got []time.Duration
	k := &packets{to: func(p Fragment) { got = append(got, p.DTS) }}
	k.waits.Store(true)
	for i := range 3 {
		if i == 2 {
			k.began(60 * time.Second)
		}
		data := []byte{byte(i)}
		k.give(Fragment{DTS: time.Minute + time.Duration(i)*time.Second, Data: data})
		data[0] = 9
	}
	if want := []time.Duration{0, time.Second, 2 * time.Second}; !slices.Equal(got, want) {
		t.Error(got)
	}
	k.waits.Store(true)
	for range 6 {
		k.give(Fragment{Data: make([]byte, maxEarly/4)})
	}
	if n := len(k.early); n != 2 {
		t.Errorf("%d packets wait, beyond the bound", n)
	}
}

func FuzzPacket(f *testing.F) {
	for _, n := range []uint32{0, 1, 8, 100} {
		f.Add(fmt.Appendf(nil, "\x00\x00\x00\x20moof%cabcdefghijklmnopqrstuvwxyz", n))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) >= 8 {
			_, _, _ = new(Fragment).parse(b)
			_ = new(MP4Header).parse(b)
		}
	})
}
