package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"millrace/client"
	"millrace/ingest/streams"
	"millrace/internal/setting"
)

// TestStreams adds, changes and removes a server stream with the program.
func TestStreams(t *testing.T) {
	t.Parallel()
	file := clipFile(t)
	films := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(file))))
	defer films.Close()
	_, addr := serve(t, "--model", "eyes=motion", "--sources-allow-private")
	want := func(code int, words string, args ...string) string {
		t.Helper()
		out, stderr, got := millrace(t, append(append([]string{"streams"}, args...), "--addr", addr)...)
		if got != code || !strings.Contains(out+stderr, words) {
			t.Fatalf("%v: exit status %d, want %d and %q\n%s%s", args, got, code, words, out, stderr)
		}
		return out
	}
	source := films.URL + "/" + filepath.Base(file)
	if out := want(0, "NAME"); strings.Count(out, "\n") != 1 {
		t.Errorf("%s", out)
	}
	if out := want(0, "", "list", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("%s", out)
	}
	want(0, "", "add", "door", source, "--model", "eyes", "--loop", "--fps", "10", "--max-age-ms", "400", "--webhook",
		"http://127.0.0.1:9/", "--webhook-secret", "s")
	var s client.ServerStream
	for limit := time.Now().Add(30 * time.Second); s.Results < 3 || s.Last == nil || s.State != "running"; {
		if err := json.Unmarshal([]byte(want(0, "", "show", "door", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(limit) {
			t.Fatalf("no results: %+v", s)
		}
	}
	if s.Name != "door" || s.Source != source || s.Model != "eyes" || s.Origin != "request" ||
		s.Policy.MaxAgeMS != 400 || s.Width != 640 || s.Last == nil || len(s.Sinks) != 1 {
		t.Errorf("%+v", s)
	}
	want(0, "640x480; at most 10 fps are taken from the source (setting fps)", "show", "door")
	want(0, "fps 10, loop true", "show", "door")
	want(0, "running", "list")
	want(0, "", "pause", "door")
	want(0, "running, paused", "list")
	want(1, `"nothing"`, "resume", "nothing", "door") // and the other one is resumed
	if out := want(0, "running", "list"); strings.Contains(out, "paused") {
		t.Errorf("%s", out)
	}
	want(1, "remove it first", "add", "door", source, "--model", "eyes")
	want(2, "fps: ", "add", "yard", source, "--model", "eyes", "--fps", "-1")
	want(1, "SOURCE: ", "add", "yard", "/etc/passwd", "--model", "eyes")
	want(1, "--rtsp-transport: ", "add", "yard", source, "--model", "eyes", "--rtsp-transport", "udp")
	want(0, `"rtsp_transport": "udp"`, "add", "lane", "rtsp://127.0.0.1:9/", "--model", "eyes", "--rtsp-transport",
		"udp", "--json")
	want(0, "rtsp://127.0.0.1:9/ over udp", "show", "lane")
	want(0, "", "remove", "lane")
	want(0, "", "add", "slow", "rtsp://127.0.0.1:9/", "--model", "eyes", "--decode", "key", "--width", "320",
		"--fps", "0.5")
	want(0, "decode key, fps 0.5, width 320", "show", "slow")
	want(0, "", "remove", "slow")
	want(0, `"name": "yard"`, "add", "yard", source, "--model", "eyes", "--paused", "--json")
	want(0, "later waits for the model ghost, which is not loaded", "add", "later", source, "--model", "ghost")
	want(0, "see millrace models, or the log of the server if no reason is there", "show", "later")
	want(0, "", "remove", "later")
	if err := json.Unmarshal([]byte(want(0, "", "set", "door", "max_age_ms=700", "window=3", "max-fps=2.5",
		"priority=high", "paused=true", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if p := s.Policy; p.MaxAgeMS != 700 || p.Window != 3 || p.MaxFPS != 2.5 || p.Priority != "high" || !s.Paused {
		t.Errorf("%+v", s)
	}
	if out := want(0, "", "set", "door", "deadline_ms=900", "paused=false"); out != "" {
		t.Errorf("%s", out)
	}
	want(2, "window: -1 is not between 1 and 1024", "set", "door", "priority=low", "window=-1")
	want(2, "priority: ", "set", "door", "priority=1")
	want(0, "latest, high priority, max_age_ms 700, deadline_ms 900, max_fps 2.5, window 3", "show", "door")
	want(0, `"policy": "latest",`, "set", "door", "max_fps=0", "deadline_ms=0", "--json")
	if out := want(0, "max_age_ms 700", "show", "door"); strings.Contains(out, "max_fps") ||
		strings.Contains(out, "deadline_ms") {
		t.Errorf("0 is the default: %s", out)
	}
	want(0, `"fps": 4`, "set", "door", "fps=4", "webhook=http://127.0.0.1:9/", "--json")
	want(0, "webhook", "show", "door")
	want(0, "", "set", "door", "webhook=", "fps=")
	// the video loops: between two rounds the source is being opened
	for limit := time.Now().Add(20 * time.Second); ; {
		out := want(0, "source", "show", "door")
		if strings.Contains(out, "webhook") || strings.Contains(out, "fps 4") || time.Now().After(limit) {
			t.Errorf("%s", out)
		} else if !strings.Contains(out, "fps read in the last 10 s") {
			continue
		}
		break
	}
	want(1, "nothing", "set", "nothing", "window=3")
	want(0, "", "remove", "door", "yard")
	want(1, "door", "show", "door")
	want(2, "--model", "add", "door", source)
	want(2, "takes NAME", "pause")
	want(2, "dance", "dance")
	want(2, "takes NAME KEY=VALUE", "set", "door")
	want(2, "is not KEY=VALUE", "set", "door", "window")
	want(2, `window: "3.5" is not a whole number`, "set", "door", "window=3.5")
	want(2, `paused: "yes" is not true or false`, "set", "door", "paused=yes")
	want(2, `max_fps: "NaN" is not a number`, "set", "door", "max_fps=NaN")
	want(2, "window: is given twice", "set", "door", "window=3", "window=4")
	want(2, "socket: cannot be changed by a request", "set", "door", "socket=x")
	want(2, "name: cannot be changed by a request", "set", "door", "name=x")
	want(2, "widnow: is not a setting of a stream", "set", "door", "widnow=3")
	want(0, "Examples:", "add", "--help")
}

// The table names the source as the origin of a frame rate only if the setting fps has not lowered the rate, and
// shows the pixel aspect ratio only for pixels that are not square.
func TestFrameSize(t *testing.T) {
	for _, c := range []struct {
		settings map[string]any
		aspect   float64
		want     string
	}{
		{nil, 0, "640x480; the source declares 5 fps"},
		{nil, 1, "640x480; the source declares 5 fps"},
		{nil, 64. / 45, "640x480 of pixels 1.422 times as wide as high; the source declares 5 fps"},
		{map[string]any{"fps": 5.0}, 0, "640x480; at most 5 fps are taken from the source (setting fps)"},
		{map[string]any{"fps": 30.0}, 0, "640x480; the source declares 5 fps"},
	} {
		rows := streamRows(&client.ServerStream{Width: 640, Height: 480, PixelAspect: c.aspect, FPS: 5,
			Settings: c.settings})
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[0] == "frame size" && row[1] == c.want }) {
			t.Errorf("%v: %v, want %s", c.settings, rows, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 1540 * time.Millisecond: "1.5s", 42 * time.Second: "42s", 125 * time.Second: "2m05s",
		3*time.Hour + 4*time.Minute: "3h04m", 50 * time.Hour: "2d02h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// The client's structs of streams name settings of the configuration that a request may set, and all changeable
// settings.
func TestClientHasTheSettings(t *testing.T) {
	names := func(of any) (out []string) {
		for f := range reflect.TypeOf(of).Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" && name != "sinks" {
				out = append(out, name)
			}
		}
		return out
	}
	table := streams.NewDraft().Table()
	for _, name := range append(names(client.StreamConfig{}), names(client.StreamChange{})...) {
		if f, ok := table.Find(name); !slices.Contains([]string{"models", "rules", "clips"}, name) && (!ok || f.Request == "") {
			t.Errorf("client.StreamConfig has %s, which is not a setting that a request may set", name)
		}
	}
	for _, f := range setting.TableOf("", new(streams.Config)).Fields() {
		if isRule(f) {
			f.Path = "rules"
		}
		if key, of := strings.CutPrefix(f.Path, "clips."); of {
			if !slices.Contains(names(client.StreamClips{}), key) {
				t.Errorf("client.StreamClips has no %s", key)
			}
			f.Path = "clips"
		}
		if !slices.Contains(names(client.StreamConfig{}), f.Path) {
			t.Errorf("client.StreamConfig has no %s", f.Path)
		}
	}
	for _, f := range setting.TableOf("", new(streams.ModelConfig)).Fields() {
		if !slices.Contains(names(client.StreamModelConfig{}), f.Path) {
			t.Errorf("client.StreamModelConfig has no %s", f.Path)
		}
	}
	if got := names(client.StreamModelChange{}); !slices.Equal(slices.Sorted(slices.Values(got)),
		slices.Sorted(slices.Values(append([]string{"model", "version", "remove"}, streams.ModelSettings...)))) {
		t.Errorf("client.StreamModelChange has %v, and %v can change", got, streams.ModelSettings)
	}
}

// Several models of a stream are given with --model, and changed by MODEL.KEY.
func TestModelsOfAStream(t *testing.T) {
	flags := pflag.NewFlagSet("add", pflag.ContinueOnError)
	r := requestFlags(flags)
	if err := flags.Parse([]string{"--model", "faces,max_fps=10,policy=every", "--model", "motion", "--max-fps",
		"3"}); err != nil {
		t.Fatal(err)
	}
	cfg, err := r.config()
	want := []client.StreamModelConfig{{Model: "faces", Policy: "every", MaxFPS: 10}, {Model: "motion"}}
	if err != nil || !slices.Equal(cfg.Models, want) || cfg.Settings["model"] != nil ||
		cfg.Settings["models"] != nil || cfg.Settings["max_fps"] != 3.0 {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, c := range [][2]string{{"faces,max_fps=x", "--model faces.max_fps: \"x\" is not a number"},
		{"faces,fps=1", "--model faces.fps: is not a setting"}, {"faces,every", "is not KEY=VALUE"}} {
		flags := pflag.NewFlagSet("add", pflag.ContinueOnError)
		r := requestFlags(flags)
		if err := flags.Parse([]string{"--model", c[0]}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.config(); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v", c[0], err)
		}
	}
	change, err := changeOf([]string{"my.model.max_fps=5", "priority=low", "my.model.window=2"})
	text, _ := json.Marshal(change)
	if want := `{"models":[{"max_fps":5,"model":"my.model","window":2}],"priority":"low"}`; err != nil ||
		string(text) != want {
		t.Errorf("%s, want %s: %v", text, want, err)
	}
	change, err = changeOf([]string{"model=motion", "webhook=", "fps=0", "faces.remove=true"})
	text, _ = json.Marshal(change)
	if want := `{"fps":0,"model":"motion","models":[{"model":"faces","remove":true}],"sinks":{"webhook":""}}`; err !=
		nil || string(text) != want {
		t.Errorf("%s, want %s: %v", text, want, err)
	}
	change, err = changeOf([]string{"rules=" + exampleRules})
	text, _ = json.Marshal(change)
	if want := `{"rules":{"lines":[{"from":[0.5,0],"name":"door","to":[0.5,1]}]}}`; err != nil ||
		string(text) != want {
		t.Errorf("%s, want %s: %v", text, want, err)
	}
	change, err = changeOf([]string{"clips.on=cross", "clips.before=3s"})
	text, _ = json.Marshal(change)
	if want := `{"clips":{"before":"3s","on":["cross"]}}`; err != nil || string(text) != want {
		t.Errorf("%s, want %s: %v", text, want, err)
	}
	change, err = changeOf([]string{"rules="})
	if text, _ = json.Marshal(change); err != nil || string(text) != `{"rules":{}}` {
		t.Errorf("%s: %v", text, err)
	}
	for args, want := range map[string]string{
		`rules={"lines":[{"name":"a"}]}`: "rules.lines[0].from: is missing",
		`rules=yes`:                      "rules: is not a JSON object",
		`rules.margin=1`:                 "rules.margin: is not a setting",
	} {
		if _, err := changeOf([]string{args}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// The table shows why a running stream has no results.
func TestProblem(t *testing.T) {
	var s client.ServerStream
	if err := json.Unmarshal([]byte(`{"state":"running","models":[{"model":"a","state":"running"},{"model":"b",`+
		`"state":"running","error":{"code":"internal","message":"no boxes"}}]}`), &s); err != nil {
		t.Fatal(err)
	}
	if got := problem(&s); got != "its newest frame failed: no boxes" {
		t.Errorf("%q", got)
	}
	s.State, s.Models[1].State, s.Models[1].Errors = "ended", "ended", 3
	if got := problem(&s); got != "its newest frame failed: no boxes" {
		t.Errorf("of a stream that has ended: %q", got)
	}
	if s.Models[1].Error = nil; problem(&s) != "" {
		t.Errorf("%q", problem(&s))
	}
}

// The command that removes a configured stream says how to restore the stream. The advice works, also after a refused
// streams add of the same name.
func TestRemovedStreamOfTheConfiguration(t *testing.T) {
	t.Parallel()
	clip := clipFile(t)
	file := filepath.Join(t.TempDir(), "millrace.yaml")
	text := fmt.Sprintf("http: 127.0.0.1:0\ngrpc: \"off\"\nmodels: [{name: eyes, source: motion}]\nstreams: [{name: "+
		"door, source: %q, model: eyes, paused: true}]\n", clip)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, command(t, "serve", "--config", file))
	addr := httpAddr.FindStringSubmatch(p.until("ready"))[1]
	if _, stderr, code := millrace(t, "streams", "remove", "door", "--addr", addr); code != 0 ||
		!strings.Contains(stderr, "door is a stream of the configuration: millrace streams reset door brings it back") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	if _, stderr, code := millrace(t, "streams", "add", "door", "http://127.0.0.1:9/x.mp4", "--model", "eyes",
		"--addr", addr); code == 0 {
		t.Errorf("a private address: %s", stderr)
	}
	if _, stderr, code := millrace(t, "streams", "reset", "door", "--addr", addr); code != 0 || stderr != "" {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	if out, _, code := millrace(t, "streams", "show", "door", "--addr", addr); code != 0 ||
		!strings.Contains(out, "of the configuration") {
		t.Errorf("exit status %d: %s", code, out)
	}
}

// streams show names the unit of each loss, and the sink that did not deliver results.
func TestStreamLosses(t *testing.T) {
	rows := streamRows(&client.ServerStream{
		Lost:  client.StreamLost{Frames: 1, Results: 2, Lines: 3},
		Sinks: map[string]client.StreamSink{"webhook": {Sent: 4, Waiting: 7, Lost: 5, Retries: 6, Error: "refused"}},
	})
	for _, want := range [][]string{
		{"lost", "1 frames without free memory, 2 results that no sink was given, 3 lines for slow watchers"},
		{"sink webhook", "4 results sent, 7 waiting, 5 results not delivered by this sink, 6 retries: refused"},
	} {
		if !slices.ContainsFunc(rows, func(row []string) bool { return slices.Equal(row, want) }) {
			t.Errorf("%q, want %q", rows, want)
		}
	}
}
