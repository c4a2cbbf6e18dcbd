package clips

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/ingest/sources"
	"millrace/internal/testneeds"
	"millrace/internal/video"
	"millrace/stream/buf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var made struct {
	once sync.Once
	list []video.Fragment
	err  error
}

// fragments returns the fragments of a video of 8 s, 10 pictures a second and a key frame each second, made once.
func fragments(t *testing.T) ([]video.Fragment, error) {
	ffmpeg := testneeds.Program(t, "ffmpeg")
	made.once.Do(func() { made.list, made.err = read(ffmpeg, filepath.Join(t.TempDir(), "a.mp4")) })
	return made.list, made.err
}

// rig is a recorder of the stream "a/..".
type rig struct {
	*Recorder
	t      *testing.T
	store  *Store
	folder string
	memory *buf.Pool
	made   chan *Clip
	list   []video.Fragment
	writes sync.WaitGroup
}

func newRig(t *testing.T, o Options, s Settings) *rig {
	t.Helper()
	list, err := fragments(t)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, folder: filepath.Join(t.TempDir(), "kept"), memory: buf.NewPool(64 << 20), list: list,
		made: make(chan *Clip, 100)}
	o.Folder, o.Log = r.folder, slog.New(slog.DiscardHandler)
	if o.Memory == 0 {
		o.Memory = 8 << 20
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	if r.store, err = Open(o); err != nil {
		t.Fatal(err)
	}
	r.Recorder = NewRecorder(Env{Store: r.store, Stream: "a/..", Memory: r.memory, Log: o.Log,
		Start: func(write func()) bool { r.writes.Go(write); return true }, Ready: func(c *Clip) { r.made <- c }})
	r.Set(s, []string{"m"})
	t.Cleanup(func() {
		r.Close()
		r.writes.Wait()
		r.store.Close()
		if n := r.memory.Stats().Leases; n != 0 {
			t.Errorf("%d leases left", n)
		}
	})
	return r
}

// play passes pictures from a number on, of an opening, with their results.
func (r *rig) play(opening uint64, from, to int) {
	for i := from; i < to; i++ {
		r.Packet(sources.Fragment{Fragment: r.list[i], Opening: opening})
		r.Result("m", r.list[i].PTS, fmt.Appendf(nil, `"objects":[%d]}`, i))
	}
}

// event passes an event at a picture.
func (r *rig) event(kind string, i int) { r.eventOf("m", kind, i, nil) }

func (r *rig) eventOf(model, kind string, i int, p *Picture) {
	r.Events(model, []Incident{{Text: fmt.Appendf(nil, `{"id":"e%d"}`, i), ID: fmt.Sprint("e", i), Type: kind,
		At: time.Duration(i) * 100 * time.Millisecond}}, p)
}

// clip returns the next clip, which must have pictures by their first number and their number.
func (r *rig) clip(first, frames int, cut Cut) *Clip {
	r.t.Helper()
	r.writes.Wait()
	select {
	case c := <-r.made:
		if got := int(c.StartUS / 100_000); got != first || c.Frames != frames || c.Cut != cut {
			r.t.Errorf("%d pictures from %d on, %q; want %d from %d, %q", c.Frames, got, c.Cut, frames, first, cut)
		}
		return c
	default:
		r.t.Fatal("no clip")
		return nil
	}
}

func seconds(n float64) *time.Duration {
	d := time.Duration(n * float64(time.Second))
	return &d
}

// A clip lasts from the key frame before its first event to the end of its last.
func TestRecorder(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{"cross"}, Before: seconds(1.5), After: seconds(1)})
	r.play(1, 0, 35)
	r.event("enter", 20)
	r.event("cross", 32)
	r.play(1, 35, 38)
	r.event("cross", 37) // lengthens the clip
	r.play(1, 38, 60)
	c := r.clip(10, 38, "")
	if len(c.Events) != 2 || c.Events[1].AtUS != 2_700_000 || c.Short || c.Seconds != 3.8 {
		t.Errorf("%+v", c)
	}
	if !strings.HasPrefix(c.path, c.Begin.Format(time.DateOnly)+"/a%2F../") {
		t.Error(c.path)
	}
	text, err := os.ReadFile(filepath.Join(r.folder, c.path+".boxes.jsonl"))
	if lines := bytes.Count(text, []byte("\n")); err != nil || lines < 38 ||
		!bytes.HasPrefix(text, []byte(`{"at_us":0,"objects":[10]}`)) {
		t.Errorf("%v: %d lines: %s", err, lines, text)
	}
	r.event("cross", 75) // before its packets
	r.play(1, 60, 80)
	r.Close()
	if c := r.clip(60, 20, CutStopped); len(c.Events) != 1 {
		t.Errorf("%+v", c)
	}
}

// An event of a video with an end waits for packets that are far behind, since both are read as fast as possible. A
// live source's clock was set instead.
func TestPacketsBehindEvents(t *testing.T) {
	for _, ends := range []bool{true, false} {
		r := newRig(t, Options{}, Settings{On: []string{"cross"}, Before: seconds(0), After: seconds(.5)})
		r.Opened(ends)
		r.play(1, 0, 10)
		r.event("cross", 302)
		for n := range 5 {
			for _, f := range r.list {
				if f.PTS += time.Duration(8*n) * time.Second; n > 0 || f.PTS >= time.Second {
					f.DTS += time.Duration(8*n) * time.Second
					f.Ticks += int64(n*len(r.list)) * (r.list[1].Ticks - r.list[0].Ticks)
					r.Packet(sources.Fragment{Fragment: f, Opening: 1})
					r.Result("m", f.PTS, nil)
				}
			}
		}
		r.Close()
		if ends {
			r.clip(300, 8, "")
		} else {
			r.clip(0, 15, "")
		}
	}
}

// A clip ends cleanly, and names the reason, when its packets do not continue.
func TestCuts(t *testing.T) {
	cross := Settings{On: []string{"cross"}, Before: seconds(0), After: seconds(5)}
	start := func(t *testing.T, o Options) *rig {
		r := newRig(t, o, cross)
		r.play(2, 0, 15)
		r.event("cross", 12)
		return r
	}
	t.Run("failure of the source", func(t *testing.T) {
		r := start(t, Options{})
		r.Lost(CutReconnected)
		r.clip(10, 5, CutReconnected)
	})
	t.Run("opened again", func(t *testing.T) {
		r := start(t, Options{})
		r.play(1, 60, 70) // of the opening before
		again := *r.list[0].Header
		for i := range 5 {
			f := r.list[i]
			f.Header = &again
			r.Packet(sources.Fragment{Fragment: f, Opening: 3})
		}
		r.clip(10, 5, CutReconnected)
	})
	t.Run("another codec", func(t *testing.T) {
		r := start(t, Options{})
		f := r.list[0]
		f.Header = &video.MP4Header{Codec: "hvc1"}
		r.Packet(sources.Fragment{Fragment: f, Opening: 3})
		r.clip(10, 5, CutCodec)
	})
	t.Run("the clock goes back", func(t *testing.T) {
		r := start(t, Options{})
		r.play(2, 0, 1)
		r.clip(10, 5, CutClock)
	})
	t.Run("no more clips", func(t *testing.T) {
		r := start(t, Options{})
		r.Set(Settings{}, nil)
		r.clip(10, 5, CutChanged)
	})
	t.Run("the folder vanishes", func(t *testing.T) {
		r := start(t, Options{})
		r.Lost(CutReconnected)
		r.clip(10, 5, CutReconnected)
		if err := os.RemoveAll(r.folder); err != nil {
			t.Fatal(err)
		}
		r.play(2, 20, 35)
		r.event("cross", 32) // the folder is made again
		r.Lost(CutReconnected)
		r.clip(30, 5, CutReconnected)
	})
}

// A recording without an end is split at key frames, and no picture is lost.
func TestAlways(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{Always}, Length: 2500 * time.Millisecond})
	r.play(1, 0, 72)
	r.event("enter", 71)
	r.Close()
	r.writes.Wait()
	total := 0
	for range 3 {
		c := <-r.made
		total += c.Frames
		if c.Frames > 30 || c.StartUS%1_000_000 != 0 {
			t.Errorf("%+v", c)
		}
	}
	if total != 72 || len(r.made) != 0 {
		t.Errorf("%d pictures in three clips, and %d further ones", total, len(r.made))
	}
}

// A clip names all models of its boxes and events: a change of the models ends the clip, and what a removed model
// gives afterwards is dropped.
func TestModelsOfClips(t *testing.T) {
	s := Settings{On: []string{Always}, Length: time.Second}
	r := newRig(t, Options{}, s)
	r.play(1, 0, 15)
	r.Set(s, []string{"m", "secret"})
	r.play(1, 15, 25)
	r.Result("secret", r.list[24].PTS, []byte(`"objects":["secret"]}`))
	r.Set(s, []string{"m"})
	r.play(1, 25, 35)
	r.Result("secret", r.list[34].PTS, []byte(`"objects":["secret"]}`))
	r.eventOf("secret", "cross", 34, nil)
	r.Close()
	r.writes.Wait()
	got := map[int64]string{}
	for range 4 {
		c := <-r.made
		got[c.StartUS] = fmt.Sprint(c.Models, len(c.Events), c.Cut)
		text, err := os.ReadFile(filepath.Join(r.folder, c.path+".boxes.jsonl"))
		if err != nil || bytes.Contains(text, []byte("secret")) != (len(c.Models) == 2) {
			t.Errorf("%v: %v %s", c.Models, err, text)
		}
	}
	want := map[int64]string{0: "[m] 0", 1_000_000: "[m] 0changed", 2_000_000: "[m secret] 0changed",
		3_000_000: "[m] 0stopped"}
	if !maps.Equal(got, want) {
		t.Error(got)
	}
}

// The events and pictures of a clip survive a kill of the server, and go with the clip.
func TestKilled(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{"cross"}, Before: seconds(2), After: seconds(60)})
	r.play(1, 0, 15)
	drawn := make(chan struct{})
	r.eventOf("m", "cross", 10, &Picture{
		Draw:    func() (plain, drawn []byte, err error) { return []byte("plain"), []byte("drawn"), nil },
		Release: func() { close(drawn) }})
	<-drawn // behind the description with the event
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(r.folder)); err != nil {
		t.Fatal(err)
	}
	video, err := filepath.Glob(filepath.Join(killed, "*/*/*.mp4"))
	if err != nil || len(video) != 1 {
		t.Fatal(video, err)
	}
	info, err := os.Stat(video[0])
	if err = errors.Join(err, os.Truncate(video[0], info.Size()-1)); err != nil { // in the last picture
		t.Fatal(err)
	}
	s, err := Open(Options{Folder: killed, MaxBytes: 1 << 30, Memory: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	list, _ := s.List(Query{Limit: 9, Keep: func(*Clip) bool { return true }})
	if len(list) != 1 || list[0].Cut != CutInterrupted || len(list[0].Events) != 1 ||
		list[0].Pictures != 1 || list[0].Events[0].Picture != 1 || list[0].Bytes <= 10 || list[0].Frames != 14 ||
		list[0].Seconds != 1.4 {
		t.Fatalf("%+v", list)
	}
	if n := pictures(t, video[0]); n != 14 {
		t.Errorf("%d pictures in the file", n)
	}
	if err := s.Delete(list[0].ID); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if left, err := os.ReadDir(killed); err != nil || len(left) != 1 || left[0].Name() != lockName {
		t.Errorf("left: %v %v", left, err)
	}
}

// pictures has ffmpeg decode a video without an error, and returns the number of pictures.
func pictures(t *testing.T, path string) int {
	t.Helper()
	out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "warning", "-count_frames", "-show_entries",
		"stream=nb_read_frames", "-of", "csv=p=0", path).CombinedOutput()
	n, no := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || no != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return n
}

// A result of before the clock was set back is ignored, and old text goes whatever its order.
func TestResultOfOldClock(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{"cross"}, Before: seconds(1), After: seconds(0)})
	r.play(1, 40, 60)
	r.play(1, 0, 1)
	r.Result("m", r.list[59].PTS, []byte(`"objects":[]}`))
	r.play(1, 1, 20)
	r.Result("m", r.list[30].PTS, []byte(`"objects":[]}`)) // ahead of its packet
	r.play(1, 20, 78)
	if first := r.ring.packets[0].dts; first < 4*time.Second || len(r.ring.text) > len(r.ring.packets) {
		t.Errorf("%d packets from %v on, %d lines", len(r.ring.packets), first, len(r.ring.text))
	}
}

// A clip goes on in another clip when the clip is large, and ends without a key frame when the clip is too large.
func TestLargeClips(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{Always}})
	size := int64(0)
	for _, f := range r.list[:10] {
		size += int64(len(f.Data))
	}
	r.store.o.MaxBytes = 6 * size // a clip goes on after 15 pictures, and ends after 30
	r.play(1, 0, 20)
	for i := 20; i < 78; i++ {
		f := r.list[i]
		f.Key = false
		r.Packet(sources.Fragment{Fragment: f, Opening: 1})
	}
	r.Close()
	r.writes.Wait()
	if c := <-r.made; len(r.made) != 0 || c.Cut != CutLong || c.Bytes > 4*size {
		t.Errorf("%+v", c)
	}
}

// Files of others in the folder stay as they are.
func TestForeignFiles(t *testing.T) {
	const clip = `{"id":"20261130-101112-A","stream":"gate","state":"recording","begin":"2026-11-30T10:11:12Z"}`
	dir := t.TempDir()
	for name, text := range map[string]string{"a.json": `{"id":"camera 7"}`, "2026-11-30/gate/b.json": clip,
		"2026-11-30/other/101112-A.json": clip, "2026-11-30/gate/101112-A.json": clip,
		"2026-11-30/gate/101112-B.json": strings.ReplaceAll(clip, "recording", "old"), "lost+found/a": ""} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	closed := filepath.Join(dir, "lost+found")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(closed, 0o700)
	s, err := Open(Options{Folder: dir, MaxAge: time.Nanosecond, MaxBytes: 1, Memory: 1,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Clips; n != 0 {
		t.Errorf("%d old clips", n)
	}
	for name, want := range map[string]bool{"a.json": true, "2026-11-30/gate/b.json": true,
		"2026-11-30/other/101112-A.json": true, "2026-11-30/gate/101112-B.json": true,
		"2026-11-30/gate/101112-A.json": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Old clips go, and favourites stay.
func TestTidy(t *testing.T) {
	now := time.Now()
	r := newRig(t, Options{MaxAge: time.Hour, Now: func() time.Time { return now }}, Settings{On: []string{Always},
		Length: time.Second})
	r.play(1, 0, 30)
	r.Close()
	r.writes.Wait()
	if st := r.store.Stats(); st.Clips != 3 || st.Bytes == 0 || st.Written != 3 || st.Cuts[CutStopped] != 1 {
		t.Fatalf("%+v", st)
	}
	c := <-r.made
	if _, err := r.store.SetFavourite(c.ID, true); err != nil {
		t.Fatal(err)
	}
	r.store.most = 2
	r.store.Tidy()
	if n := r.store.Stats().Clips; n != 2 {
		t.Errorf("%d clips, beyond the number", n)
	}
	now = now.Add(2 * time.Hour)
	r.store.Tidy()
	if list, _ := r.store.List(Query{Limit: 9, Keep: func(*Clip) bool { return true }}); len(list) != 1 ||
		list[0].ID != c.ID {
		t.Errorf("%v", list)
	}
}

// The memory of packets is bounded; the event has a shorter clip.
func TestRingIsBounded(t *testing.T) {
	r := newRig(t, Options{Memory: 30 << 10}, Settings{On: []string{"cross"}, Before: seconds(6), After: seconds(0)})
	r.play(1, 0, 72)
	if r.ring.bytes > 30<<10 || len(r.ring.packets) == 0 || !r.ring.packets[0].key {
		t.Errorf("%d bytes", r.ring.bytes)
	}
	r.event("cross", 70)
	r.play(1, 72, 75)
	if c := <-r.made; !c.Short {
		t.Errorf("%+v", c)
	}
}

func TestEscape(t *testing.T) {
	for name, want := range map[string]string{"gate": "gate", "../../etc": "%2E.%2F..%2Fetc", "": "%", "..": "%2E.",
		"a/b\x00": "a%2Fb%00"} {
		if got := escape(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
