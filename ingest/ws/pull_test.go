package ws_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/ingest/ws"
	"millrace/internal/video"
	"millrace/workers"
)

// videos serves a folder with clip.mp4, 20 frames of 160 x 120 pixels at 10 a
// second, long.mp4, 600 of them, and words.txt.
func videos(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, seconds := range map[string]string{"clip.mp4": "2", "long.mp4": "60"} {
		cmd := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=160x120:rate=10:duration="+seconds,
			"-pix_fmt", "yuv420p", "-movflags", "+faststart", filepath.Join(dir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(dir)))
	mux.HandleFunc("/words.txt", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("no video at all")) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestPull(t *testing.T) {
	url := videos(t)
	r := start(t, ws.Options{AllowPrivateURLs: true}, workers.Config{Name: "eyes", Kind: "motion"})
	c := r.dial("/v2/stream?model=echo&outputs=none")
	for range 2 { // one pull after the other
		c.say(`{"url":"` + url + `/clip.mp4","model":"eyes"}`)
		for i := range 20 {
			m := c.next()
			if m.Error != nil || m.Seq == nil || *m.Seq != uint64(i) || m.Model != "eyes" || m.PTS != int64(i)*100_000 || m.SourceWidth != 160 || m.SourceHeight != 120 {
				t.Fatalf("frame %d: %+v %+v", i, m, m.Error)
			}
		}
		if m := c.next(); !m.Done || m.Frames != 20 || m.Drops != 0 {
			t.Fatalf("%+v %+v", m, m.Error)
		}
		r.until("the pull has ended", func() bool { return r.ws.Stats().Pulls == 0 })
	}
	for name, code := range map[string]string{"missing.mp4": "not_found", "words.txt": "unsupported"} {
		c.say(`{"url":"` + url + "/" + name + `"}`)
		c.nextError(code, -1)
		r.until("the pull has ended", func() bool { return r.ws.Stats().Pulls == 0 })
	}
	st := r.mem.Stats()
	taken := st.Budget - st.Leased - st.Reserved - video.Memory(160*120) + 1
	if err := r.mem.Charge(taken); err != nil {
		t.Fatal(err)
	}
	c.say(`{"url":"` + url + `/clip.mp4"}`) // which is opened, and is too large then
	c.nextError("overloaded", -1, "memory.budget")
	r.mem.Refund(taken)
	r.until("the pull has ended", func() bool { return r.ws.Stats().Pulls == 0 })
	c.say(`{"url":"` + url + `/clip.mp4","model":"none"}`)
	c.nextError("not_found", -1, "none")
	c.send([]byte("and frames again"))
	if m := c.next(); m.Error != nil || *m.Seq != 0 {
		t.Fatalf("%+v", m)
	}
}

// The memory of a pulled video counts in the share of the client's messages.
func TestShareOfPulls(t *testing.T) {
	r := start(t, ws.Options{AllowPrivateURLs: true})
	r.mem.LimitShares(1) // of 1 GiB: no room for any
	c := r.dial("/v2/stream?model=echo&outputs=none")
	c.say(`{"url":"http://127.0.0.1:1/clip.mp4"}`)
	c.nextError("overloaded", -1, "memory.client_share")
}

// TestPullEnds stops a pull, unloads its model, and leaves during one.
func TestPullEnds(t *testing.T) {
	url := videos(t)
	r := start(t, ws.Options{AllowPrivateURLs: true})
	c := r.dial("/v2/models/slow/stream?outputs=none")
	pull := `{"url":"` + url + `/long.mp4"}`
	c.say(pull)
	c.next()
	c.say(pull)
	c.send([]byte("a frame in between"))
	conflicts := 0
	for conflicts < 2 {
		if m := c.next(); m.Error != nil && m.Error.Code == "conflict" {
			conflicts++
		}
	}
	c.say(`{"stop":true}`)
	var last reply
	for frames := 1; !last.Done; frames++ {
		if last = c.next(); last.Error != nil {
			t.Fatalf("%+v", last.Error)
		}
	}
	if last.Frames < 1 || last.Frames >= 600 {
		t.Errorf("%d frames", last.Frames)
	}
	r.until("the pull has ended", func() bool { return r.ws.Stats().Pulls == 0 })

	echo := r.dial("/v2/stream?model=echo&outputs=none")
	echo.say(strings.Replace(pull, "}", `,"model":"slow"}`, 1))
	echo.next()
	if err := r.models.Unload(t.Context(), "slow", ""); err != nil {
		t.Fatal(err)
	}
	for {
		if m := echo.next(); m.Seq == nil {
			if m.Error == nil || m.Error.Code != "unloaded" {
				t.Errorf("%+v %+v", m, m.Error)
			}
			break
		}
	}
	c.nextError("unloaded", -1)
	c.closed(4404)
	r.until("the pull has ended", func() bool { return r.ws.Stats().Pulls == 0 })

	echo.say(pull)
	echo.next()
	echo.Close()
	r.until("all is gone", func() bool { st := r.ws.Stats(); return st.Pulls == 0 && st.Conns == 0 })
}

func TestPython(t *testing.T) {
	python := "python3"
	if exec.Command(python, "-c", "import websockets").Run() != nil {
		python = "/usr/bin/python3" // where apt puts modules, when another one comes first in PATH
	}
	r := start(t, ws.Options{})
	for script, path := range map[string]string{"testdata/peer.py": "/v2/models/echo/stream", "testdata/v1.py": "/v2/stream"} {
		out, err := exec.CommandContext(t.Context(), python, script, "ws://"+r.addr+path).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "ok" {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}
