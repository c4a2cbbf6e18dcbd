package ws_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/ws"
	"millrace/internal/child"
	"millrace/internal/testneeds"
	"millrace/internal/video"
	"millrace/internal/video/videotest"
	"millrace/stream"
	"millrace/workers"
)

// videos serves a folder with clip.mp4 (20 frames of 160 x 120 pixels at 10 a second), long.mp4 (600 frames), and
// words.txt.
func videos(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, seconds := range map[string]string{"clip.mp4": "2", "long.mp4": "60"} {
		cmd := exec.Command(testneeds.Program(t, "ffmpeg"), "-v", "error", "-f", "lavfi", "-i",
			"testsrc2=size=160x120:rate=10:duration="+seconds,
			"-pix_fmt", "yuv420p", "-movflags", "+faststart", filepath.Join(dir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(dir)))
	mux.HandleFunc("/words.txt", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("no video at all"))
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestPull(t *testing.T) {
	url := videos(t)
	r := start(t, ws.Options{AllowPrivateURLs: true}, workers.Config{Name: "eyes", Kind: "motion"})
	c := r.dial("/v2/stream?model=echo&outputs=none")
	for range 2 { // two pulls in sequence
		c.say(`{"url":"` + url + `/clip.mp4","model":"eyes"}`)
		for i := range 20 {
			m := c.next()
			if m.Error != nil || m.Seq == nil || *m.Seq != uint64(i) || m.Model != "eyes" ||
				m.PTS != int64(i)*100_000 || m.SourceWidth != 160 || m.SourceHeight != 120 {
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

// TestPullEnds stops a pull, unloads the model during a pull, and disconnects during a pull.
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
	python := testneeds.Python(t, "websockets")
	r := start(t, ws.Options{})
	for script, path := range map[string]string{"testdata/peer.py": "/v2/models/echo/stream",
		"testdata/v1.py": "/v2/stream"} {
		out, err := exec.CommandContext(t.Context(), python, script, "ws://"+r.addr+path).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "ok" {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}

// pullOf returns a rig for clients with a quota of decoding, a client's account, and a connection of the client.
func pullOf(t *testing.T, o ws.Options, q access.Quotas) (*rig, *access.Account, *client) {
	t.Helper()
	o.AllowPrivateURLs, o.Sandbox = true, child.SandboxError() == nil
	r := startFor(t, o, q)
	of, err := r.enter(t.Context(), "camera")
	if err != nil {
		t.Fatal(err)
	}
	return r, of.Account(), r.dial("/v2/stream?model=echo&outputs=none")
}

// TestQuotaOfPulledVideos: the ffmpegs of pulled videos use no more processor time than the client's quota, and no
// frame of a finite video is lost. With the quota used up, no video is begun.
func TestQuotaOfPulledVideos(t *testing.T) {
	url := videos(t)
	const rate, burst = 0.1, 100 * time.Millisecond
	r, account, c := pullOf(t, ws.Options{}, access.Quotas{Decode: rate, Burst: burst})
	begun := time.Now()
	c.say(`{"url":"` + url + `/clip.mp4"}`)
	for i := range 20 {
		if m := c.next(); m.Error != nil || m.Seq == nil || *m.Seq != uint64(i) || m.Dropped != "" ||
			m.PTS != int64(i)*100_000 {
			t.Fatalf("frame %d: %+v %+v", i, m, m.Error)
		}
	}
	if m := c.next(); !m.Done || m.Frames != 20 || m.Drops != 0 {
		t.Fatalf("%+v %+v", m, m.Error)
	}
	used := time.Duration(account.Used(stream.QuotaDecode))
	// Besides, ffmpeg decodes ahead into its pipe, and the last frames need not be repaid yet.
	if most := time.Duration(rate*float64(time.Since(begun)+burst)) + used/3; used > most ||
		used < 10*time.Millisecond {
		t.Errorf("%v of processor time in %v, want at most %v", used, time.Since(begun), most)
	}
	r.access.SetQuotas(access.Quotas{Decode: 1e-6, Burst: time.Millisecond})
	account.Decoded(time.Second, stream.Now())
	r.until("the pull has ended", func() bool { return r.ws.Stats().Pulls == 0 })
	c.say(`{"url":"` + url + `/clip.mp4"}`)
	c.nextError("flow_control", -1, "quotas.decode")
}

// TestQuotaOfACamera: a camera is closed while its client is far over its quota (a dropped frame says `quota`), and
// opened again later: the pull continues with later times.
func TestQuotaOfACamera(t *testing.T) {
	if testing.Short() {
		t.Skip("an RTSP camera takes seconds to begin")
	}
	clip := filepath.Join(t.TempDir(), "numbered.mp4")
	if err := videotest.Numbered(clip, 160, 96, 60, 10, 0); err != nil {
		t.Fatal(err)
	}
	camera := videotest.RunCamera(t, clip)
	r, account, c := pullOf(t, ws.Options{}, access.Quotas{Decode: 1e-6, Burst: time.Millisecond})
	c.say(`{"url":"rtsp://` + camera.Addr + `"}`)
	var seq uint64
	var pts int64
	next := func() (dropped string) {
		t.Helper()
		m := c.next()
		if m.Error != nil || m.Seq == nil || *m.Seq != seq || m.Dropped == "" && m.PTS < pts {
			t.Fatalf("frame %d, after %d us: %+v %+v", seq, pts, m, m.Error)
		}
		seq++
		if m.Dropped == "" {
			pts = m.PTS
		}
		return m.Dropped
	}
	first := next()
	if dropped := next(); first == "quota" || dropped != "quota" || account.Denied(stream.QuotaDecode) != 1 {
		t.Errorf("the first frame: dropped %q, the second: %q; %d are denied", first, dropped,
			account.Denied(stream.QuotaDecode))
	}
	r.until("ffmpeg has ended", func() bool { return child.LiveChildren() == 0 })
	if st := r.ws.Stats(); st.Pulls != 1 || camera.Clients() != 1 {
		t.Errorf("%d pulls, %d clients of the camera", st.Pulls, camera.Clients())
	}
	answered := func() { // the next frame without a drop
		t.Helper()
		for dropped := "-"; dropped != ""; {
			if dropped = next(); dropped == "quota" {
				t.Fatal("a frame is dropped without a quota")
			}
		}
	}
	r.access.SetQuotas(access.Quotas{}) // any number
	for until := pts + 1_500_000; pts < until; {
		answered()
	}
	r.access.SetQuotas(access.Quotas{Decode: 1e-6, Burst: time.Millisecond})
	for next() != "quota" {
	}
	r.access.SetQuotas(access.Quotas{})
	answered() // with later times
	if n := camera.Clients(); n != 3 {
		t.Errorf("the camera had %d clients, want 3", n)
	}
	c.say(`{"stop":true}`)
	for m := c.next(); !m.Done; m = c.next() {
		if m.Error != nil {
			t.Fatalf("%+v", m.Error)
		}
	}
}

// TestStopWhileOverQuota: stopping a pull that waits for its quota takes effect at once.
func TestStopWhileOverQuota(t *testing.T) {
	r, account, _ := pullOf(t, ws.Options{}, access.Quotas{})
	c := r.dial("/v2/models/slow/stream?outputs=none&policy=every") // the video lasts longer than the test needs
	url := videos(t)
	var m reply
	for end := time.Now().Add(patience); ; {
		c.say(`{"url":"` + url + `/long.mp4"}`)
		// a busy machine opens a video too late
		if m = c.next(); m.Error == nil || m.Error.Code != "timeout" || time.Now().After(end) {
			break
		}
	}
	if m.Error != nil || m.Dropped != "" {
		t.Fatalf("%+v %+v", m, m.Error)
	}
	r.access.SetQuotas(access.Quotas{Decode: 1e-6, Burst: time.Millisecond})
	account.Decoded(time.Second, stream.Now())
	r.until("the pull waits for its quota", func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".awaitQuota(")
	})
	c.say(`{"stop":true}`)
	m = c.next()
	for m.Error == nil && (m.Dropped == "" || m.Dropped == string(stream.Closed)) && !m.Done { // frames read earlier
		m = c.next()
	}
	if !m.Done || m.Frames < 1 || m.Frames >= 600 {
		t.Errorf("%+v %+v", m, m.Error)
	}
	r.until("ffmpeg has ended", func() bool { return child.LiveChildren() == 0 })
}

// TestPullThatOnlyComputes: a video decoded without a picture ends with an error that names the setting, is counted,
// and is charged to the client; another client's video continues.
func TestPullThatOnlyComputes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the processor time of a child that runs is not known here")
	}
	hidden := videotest.IVF("VP90", 640, 360, videotest.Hidden(t, 640, 360, 1, 300))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(hidden) }))
	defer s.Close()
	url := videos(t)
	r, account, c := pullOf(t, ws.Options{Limits: ingest.Limits{MaxDecodeTime: 50 * time.Millisecond}},
		access.Quotas{})
	other := r.dial("/v2/models/slow/stream?outputs=none&policy=every")
	other.say(`{"url":"` + url + `/long.mp4"}`)
	before := other.next()
	c.say(`{"url":"` + s.URL + `/x.ivf"}`)
	if m := c.next(); m.Error != nil || m.Seq == nil {
		t.Fatalf("%+v %+v", m, m.Error)
	}
	c.nextError("timeout", -1, "over limits.max_decode_time=50ms")
	r.until("it is counted", func() bool { return r.ws.Stats().TooSlow["pulled"] == 1 })
	if used := time.Duration(account.Used(stream.QuotaDecode)); used < 50*time.Millisecond {
		t.Errorf("%v are charged", used)
	}
	for i := range 3 {
		if m := other.next(); m.Error != nil || *m.Seq != *before.Seq+uint64(i)+1 {
			t.Fatalf("another video: %+v %+v", m, m.Error)
		}
	}
	c.say(`{"url":"` + url + `/clip.mp4"}`) // the connection goes on
	if m := c.next(); m.Error != nil || m.Seq == nil {
		t.Fatalf("%+v %+v", m, m.Error)
	}
}
