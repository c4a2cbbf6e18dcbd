package streams_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/ingest/clips"
	"millrace/ingest/streams"
	"millrace/internal/codec"
	"millrace/internal/setting"
	"millrace/internal/testneeds"
	"millrace/stream/rules"
)

// store opens a new folder of clips.
func store(t *testing.T) (s *clips.Store, folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "clips")
	s, err := clips.Open(clips.Options{Folder: folder, MaxBytes: 1 << 30, Memory: 8 << 20,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s, folder
}

// walk is a video of toAndFro at 10 pictures a second, with a key frame each half second.
func walk(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "walk.mp4")
	out, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-framerate", "10", "-i",
		filepath.Join(toAndFro(t), "%d.jpg"), "-c:v", "libx264", "-g", "5", "-bf", "2", "-sc_threshold", "0",
		"-pix_fmt", "yuv420p", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// gate is a stream with a line and more settings.
func gate(t *testing.T, source, more string) streams.Config {
	t.Helper()
	d := streams.NewDraft()
	if err := d.Table().SetJSON([]byte(`{"name":"gate","model":"people","policy":"every",
		"rules":{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]},`+more+`}`), setting.Field.SetAny); err != nil {
		t.Fatal(err)
	}
	if err := d.Table().Set("source", source); err != nil {
		t.Fatal(err)
	}
	c, err := d.Config()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ready waits for the next clips.
func (r *rig) ready(n int) (list []clips.Clip) {
	r.t.Helper()
	for limit := time.Now().Add(patience); len(list) < n; {
		var all struct{ Clips []clips.Clip }
		if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/clips", "")), &all); err != nil {
			r.t.Fatal(err)
		}
		list = nil
		for _, c := range all.Clips {
			if c.State == clips.Ready {
				list = append(list, c)
			}
		}
		if time.Now().After(limit) {
			r.t.Fatalf("%d clips: %+v", n, all)
		}
		<-time.After(5 * time.Millisecond)
	}
	return list
}

// probe has ffmpeg decode a file without an error, and returns the times of its pictures and which are key frames.
func probe(t *testing.T, video string) (times []float64, keys []bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip.mp4")
	if err := os.WriteFile(path, []byte(video), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "warning", "-xerror", "-i", path,
		"-f", "null", "-").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	out, err = exec.Command(testneeds.Program(t, "ffprobe"), "-v", "error", "-show_entries",
		"packet=pts_time,flags", "-of", "csv=p=0", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(out)) {
		var at float64
		var flags string
		if _, err := fmt.Sscanf(strings.ReplaceAll(line, ",", " "), "%f %s", &at, &flags); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		times, keys = append(times, at), append(keys, flags[0] == 'K')
	}
	return times, keys
}

// A camera that crosses a line has a clip from a key frame at most a group of pictures before the asked time on.
func TestClips(t *testing.T) {
	kept, folder := store(t)
	r := start(t, streams.Options{AllowPrivate: true, Clips: kept})
	r.load(people)
	r.streams.Add(t, gate(t, walk(t), `"loop":true,"clips":{"on":["cross"],"before":"500ms","after":"300ms"}`))
	list := r.ready(3)
	r.want(200, "PATCH", "/v2/streams/gate", `{"clips":{"before":"1s"}}`)
	r.want(400, "PATCH", "/v2/streams/gate", `{"clips":{"on":["jump"]}}`)
	r.want(200, "PATCH", "/v2/streams/gate", `{"rules":{}}`) // of events that come with later rules
	r.want(200, "PATCH", "/v2/streams/gate", `{"clips":{"on":[]}}`)
	r.want(204, "DELETE", "/v2/streams/gate", "")
	for _, c := range list {
		if len(c.Events) != 1 || c.Cut != "" || c.Stream != "gate" || c.Models[0] != "people" || c.Codec != "avc1" {
			t.Fatalf("%+v", c)
		}
		var e rules.Event
		if err := json.Unmarshal(c.Events[0].Event, &e); err != nil || e.Type != rules.CrossEvent {
			t.Fatal(err, e)
		}
		var of struct{ Clips []clips.Clip }
		if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/clips?event="+e.ID, "")), &of); err != nil ||
			len(of.Clips) != 1 || of.Clips[0].ID != c.ID {
			t.Errorf("the clips of the event %s: %v %+v", e.ID, err, of)
		}
		at := float64(c.Events[0].AtUS) / 1e6
		if want := float64(e.End-c.StartUS) / 1e6; at != want {
			t.Errorf("the event is at %v, want %v", at, want)
		}
		times, keys := probe(t, r.want(200, "GET", "/v2/clips/"+c.ID+"/video", ""))
		if first := float64(c.OffsetUS) / 1e6; math.Abs(times[0]-first) > 1e-3 || first == 0 { // B-frames
			t.Errorf("the first picture is at %v, not %v", times[0], first)
		}
		if !keys[0] || len(times) != c.Frames || c.Seconds < at+.3 || c.Seconds > at+.6+.001 {
			t.Errorf("%v: %v %+v", at, times, c)
		}
		// The first clip may begin with the video.
		if at > .5+.5+.001 || at < .5-.001 && !c.Short {
			t.Errorf("the event is %v s behind the first key frame", at)
		}
	}
	c := list[0]
	for _, name := range []string{"1", "1?boxes=true"} {
		picture := r.want(200, "GET", "/v2/clips/"+c.ID+"/pictures/"+name, "")
		if i, err := (codec.Limits{}).Header([]byte(picture)); err != nil || i.Width != 64 || i.Height != 48 {
			t.Errorf("%s: %v %v", name, i, err)
		}
	}
	lines := strings.Split(strings.TrimSpace(r.want(200, "GET", "/v2/clips/"+c.ID+"/objects", "")), "\n")
	var line struct {
		AtUS    int64 `json:"at_us"`
		Objects []struct {
			Box   []float64
			Track int64
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil || len(line.Objects) != 1 ||
		line.Objects[0].Track == 0 || len(line.Objects[0].Box) != 4 || line.AtUS == 0 {
		t.Errorf("%v: %s", err, lines)
	}
	if text := r.want(200, "GET", "/v2/clips/"+c.ID+"/boxes.vtt", ""); !strings.HasPrefix(text, "WEBVTT\n\n00:00:0") ||
		strings.Count(text, " --> ") != strings.Count(strings.Join(lines, ""), `"box"`) || !strings.Contains(text, " #") {
		t.Error(text)
	}
	if part := r.want(206, "GET", "/v2/clips/"+c.ID+"/video", "", "Range", "bytes=4-7"); part != "ftyp" {
		t.Errorf("%q", part)
	}
	// The client has a part of the video as it was before its end.
	if all := r.want(200, "GET", "/v2/clips/"+c.ID+"/video", "", "Range", "bytes=4-7", "If-Range",
		`"fragmented"`); len(all) < 8 || strings.Contains(all, "moof") ||
		strings.Index(all, "moov") > strings.Index(all, "mdat") {
		t.Errorf("%.80q", all)
	}
	r.want(206, "GET", "/v2/clips/"+c.ID+"/video", "", "Range", "bytes=4-7", "If-Range", `"indexed"`)
	r.want(200, "PATCH", "/v2/clips/"+c.ID, `{"favourite":true}`)
	r.want(204, "DELETE", "/v2/clips/"+list[1].ID, "")
	r.want(404, "GET", "/v2/clips/"+list[1].ID+"/video", "")
	// Another server reads the folder.
	kept.Close()
	again, err := clips.Open(clips.Options{Folder: folder, MaxBytes: 1, Memory: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := again.Get(c.ID); err != nil || !found.Favourite || found.Seconds != c.Seconds {
		t.Errorf("%+v %v", found, err)
	}
	if st := again.Stats(); st.Clips != 1 {
		t.Errorf("beyond max_bytes only the favourite stays: %+v", st)
	}
	if err := again.Delete(c.ID); err != nil {
		t.Error(err)
	}
	again.Close()
	r.want(503, "DELETE", "/v2/clips/"+c.ID, "") // by the first server, after its end
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 1 || left[0].Name() != "lock" {
		t.Errorf("left in the folder: %v %v", left, err)
	}
}
