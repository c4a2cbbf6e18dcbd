package ws_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/ingest/clips"
	"millrace/ingest/ws"
	"millrace/internal/codec"
	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// filmed is a server whose client streams have clips.
type filmed struct {
	*rig
	store *clips.Store
}

func film(t *testing.T, s clips.ClientSettings) *filmed {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	store, err := clips.Open(clips.Options{Folder: filepath.Join(t.TempDir(), "clips"), MaxBytes: 1 << 30,
		Memory: 8 << 20, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	o := ws.Options{Clips: clips.NewClients(s, store, codec.Limits{}, quiet)}
	o.Resume = time.Hour
	return &filmed{start(t, o, walking), store}
}

// after are the settings of clips of a crossing, from before to after the crossing.
func after(before, after time.Duration) clips.ClientSettings {
	return clips.ClientSettings{On: []string{"cross"}, Before: &before, After: &after}
}

const door = `,"rules":{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]}`

// at sends a chunk with a time.
func (v *v1) at(codec string, sid uint32, seq uint64, at time.Duration, data []byte) {
	v.t.Helper()
	b := raw(1, codecs[codec], 0, sid, seq, data)
	binary.LittleEndian.PutUint64(b[16:], uint64(at.Microseconds()))
	v.media(b)
}

// walk sends the chunks of a list from a place on, each 100 ms after the chunk before, and reads the results.
func (v *v1) walk(codec string, sid uint32, list [][]byte, from int) {
	v.t.Helper()
	for i := from; i < len(list); i++ {
		v.at(codec, sid, uint64(i), time.Hour+time.Duration(i)*100*time.Millisecond, list[i])
		if e := v.next(); e.Type != "result" {
			v.t.Fatalf("%s %d: %+v", codec, i, e)
		}
	}
}

// made waits for clips.
func (f *filmed) made(n int) (list []*clips.Clip) {
	f.t.Helper()
	f.until("clips", func() bool {
		list, _ = f.store.List(clips.Query{Limit: 9, Keep: func(c *clips.Clip) bool { return c.State == clips.Ready }})
		return len(list) == n
	})
	return list
}

// decoded has ffmpeg decode the video of a clip without a complaint, and returns the number of its pictures.
func (f *filmed) decoded(c *clips.Clip) int {
	f.t.Helper()
	video, err := f.store.File(c, ".mp4")
	if err != nil {
		f.t.Fatal(err)
	}
	defer video.Close()
	path := filepath.Join(f.t.TempDir(), "clip.mp4")
	data, err := io.ReadAll(video)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := exec.Command(testneeds.Program(f.t, "ffprobe"), "-v", "warning", "-count_frames", "-show_entries",
		"stream=nb_read_frames", "-of", "csv=p=0", path).CombinedOutput()
	n, no := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || no != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	return n
}

// A crossing in a client's video has a clip from the key frame before its pre-roll to its post-roll, in each codec.
func TestV1Clips(t *testing.T) {
	f := film(t, after(500*time.Millisecond, 300*time.Millisecond))
	v := f.v1("/v2/stream")
	for i, codec := range videotest.Codecs {
		v.open(i+1, `,"model":"people","codec":"`+codec+`"`+door+every)
		v.walk(codec, uint32(i+1), videotest.Chunks(t, codec, 96, 64, 50), 0)
	}
	v.open(9, `,"model":"people","codec":"vp8"`+every) // has no rules
	v.walk("vp8", 9, videotest.Chunks(t, "vp8", 96, 64, 50), 0)
	names := map[string]string{}
	for _, c := range f.made(4) {
		names[c.Stream] = c.Codec
		at := float64(c.Events[0].AtUS) / 1e6
		if len(c.Events) != 1 || c.Cut != "" || c.Short || !c.Client || c.Models[0] != "people" || len(c.Models) != 1 ||
			at < .5 || at > 1.5 || c.Seconds < at+.3 || c.Seconds > at+.51 || c.StartUS%1e6 != 0 {
			t.Errorf("%v: %+v", at, c)
		}
		if n := f.decoded(c); n != c.Frames || n != int(c.Seconds*10+.5) {
			t.Errorf("%d pictures: %+v", n, c)
		}
		for _, suffix := range []string{".1.jpg", ".1.boxes.jpg", ".boxes.jsonl"} {
			if file, err := f.store.File(c, suffix); err != nil {
				t.Error(err)
			} else {
				file.Close()
			}
		}
	}
	for i, codec := range []string{"avc1", "vp08", "vp09", "av01"} {
		if name := fmt.Sprintf("%s/%d", v.id, i+1); names[name] != codec {
			t.Errorf("%s: %q in %v", name, names[name], names)
		}
	}
}

// A clip goes on when the client resumes the session, and ends with the reason when the size of the video changes and
// when the stream ends.
func TestV1ClipEnds(t *testing.T) {
	f := film(t, after(500*time.Millisecond, time.Minute))
	list := videotest.Chunks(t, "h264", 96, 64, 50)
	v := f.v1("/v2/stream")
	v.open(1, `,"model":"people","codec":"h264"`+door+every)
	v.walk("h264", 1, list[:35], 0)
	v.Close()
	w := f.v1("/v2/stream")
	w.say(`{"type":"attach","token":"` + v.token + `","streams":[{"sid":1,"last_seq":34}]}`)
	w.expect("attached")
	w.walk("h264", 1, list[:45], 40) // from a key frame on
	large := append(append([][]byte(nil), list[:45]...), videotest.Chunks(t, "h264", 128, 64, 4)...)
	w.walk("h264", 1, large, 45)
	if c := f.made(1)[0]; c.Cut != clips.CutFormat || c.Frames != 20 || f.decoded(c) != 20 || c.Seconds != 2.5 {
		t.Errorf("%d pictures: %+v", f.decoded(c), c)
	}
	w.open(2, `,"model":"people","codec":"h264"`+door+every)
	w.walk("h264", 2, list[:40], 0)
	w.say(`{"type":"close","sid":2}`)
	w.expect("closed")
	cuts := map[clips.Cut]int{}
	for _, c := range f.made(2) {
		cuts[c.Cut] = f.decoded(c)
	}
	if cuts[clips.CutStopped] != 20 {
		t.Errorf("%v", cuts)
	}
}

// Without clips.clients, a client makes the server write nothing.
func TestV1WithoutClips(t *testing.T) {
	f := film(t, clips.ClientSettings{})
	v := f.v1("/v2/stream")
	v.open(1, `,"model":"people","codec":"vp8"`+door+every)
	v.walk("vp8", 1, videotest.Chunks(t, "vp8", 96, 64, 50), 0)
	f.stop()
	if st := f.store.Stats(); st.Clips != 0 || st.Written != 0 || st.Missed != 0 {
		t.Errorf("%+v", st)
	}
}
