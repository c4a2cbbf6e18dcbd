package video

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// program writes a script to run in place of ffmpeg.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ffmpeg")
	testneeds.WriteProgram(t, path, "#!/bin/sh\n"+script+"\n")
	return path
}

// Each unusable method has a reason; with the usable methods of this machine, the real ffmpeg decodes.
func TestFindHardware(t *testing.T) {
	if f := FindHardware(t.Context(), HardwareNone, ""); f.Use != "" || f.Missing != nil ||
		f.String() != "videos are decoded in software" {
		t.Errorf("none: %+v", f)
	}
	t.Setenv("LIBVA_DRIVER_NAME", "none") // no driver of VAAPI, even with a device
	f := FindHardware(t.Context(), VAAPI, "")
	if f.Use != "" || len(f.Missing) != 1 || !strings.HasPrefix(f.Missing[0], "vaapi cannot be used: ") ||
		strings.Contains(f.String(), "\n") {
		t.Errorf("without a driver: %+v", f)
	}
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		if f := FindHardware(t.Context(), HardwareAuto, ""); f.Use != "" || len(f.Missing) != len(hardwareMethods) ||
			!strings.HasPrefix(f.Missing[0], "cuda cannot be used: ") {
			t.Errorf("auto: %+v", f)
		}
	}
	for script, want := range map[string]string{
		"echo vdpau": "vaapi cannot be used: this ffmpeg was built without it (ffmpeg -hwaccels)",
		`[ "$2" = -hwaccels ] && echo vaapi || head -c 115200 /dev/zero`: "vaapi cannot be used: it decoded a " +
			"picture wrongly",
		`[ "$2" = -hwaccels ] && echo vaapi || exit 3`: "vaapi cannot be used: exit status 3",
		"echo broken >&2; exit 1":                      "vaapi cannot be used: broken",
	} {
		if f := FindHardware(t.Context(), VAAPI, program(t, script)); f.Use != "" ||
			!slices.Equal(f.Missing, []string{want}) {
			t.Errorf("%s: %+v", script, f)
		}
	}
	if f := FindHardware(t.Context(), VAAPI, "no-such-program"); f.Use != "" || len(f.Missing) != 1 ||
		!strings.Contains(f.Missing[0], "not found") {
		t.Errorf("without ffmpeg: %+v", f)
	}
	// A driver that hangs: the trial ends with its context.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if f := FindHardware(ctx, VAAPI, program(t, "exec sleep 1000")); f.Use != "" || len(f.Missing) != 1 {
		t.Errorf("that hangs: %+v", f)
	}
}

// The reason of VAAPI names the missing or inaccessible device.
func TestRenderNodes(t *testing.T) {
	dir := t.TempDir()
	if err := checkRenderNodes(dir); err == nil || !strings.HasPrefix(err.Error(), "there is no "+dir+"/renderD*") {
		t.Errorf("without a device: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "renderD128"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := checkRenderNodes(dir); err == nil ||
		!strings.Contains(err.Error(), "renderD128: is a directory (add the server's user") {
		t.Errorf("that cannot be opened: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "renderD129"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkRenderNodes(dir); err != nil {
		t.Errorf("one of two can be opened: %v", err)
	}
	if nodes, _ := filepath.Glob("/dev/dri/renderD*"); len(nodes) == 0 {
		if f := FindHardware(t.Context(), VAAPI, ""); len(f.Missing) != 1 ||
			!strings.HasPrefix(f.Missing[0], "vaapi cannot be used: there is no /dev/dri/renderD*") {
			t.Errorf("on this machine: %+v", f)
		}
	}
}

func TestHardwareOfNewDecoders(t *testing.T) {
	if h := NewHardware(HardwareNone, nil); h != nil || h.method(t.Context()) != "" {
		t.Errorf("none: %+v", h)
	}
	h := NewHardware(VAAPI, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if m := h.method(ended); m != "" {
		t.Errorf("before it is found: %q", m)
	}
	now := time.Now()
	h.now = func() time.Time { return now }
	h.use = VAAPI
	close(h.found)
	for _, c := range []struct {
		messages string
		want     bool
	}{
		{"[h264 @ 0x1] error while decoding MB 3 4\n", false},
		// ffmpeg falls back
		{"[h264 @ 0x1] Failed setup for format vaapi: hwaccel initialisation returned error.\n", false},
		// An address chosen by the source.
		{"http://h/CUDA_ERROR_.mp4: Server returned 404 Not Found\n", false},
		{"[http @ 0x1] HTTP error 404 of http://h/AVHWDeviceContext/Device creation failed\n", false},
		{"[AVHWFramesContext @ 0x1] Failed to create surface: 2\n[h264 @ 0x1] Failed setup for format vaapi: " +
			"hwaccel initialisation returned error.\n" +
			"[rtsp @ 0x2] Connection reset by peer\n", false}, // after the fallback, the network failed
		{"x\nDevice creation failed: -5.\ny\n", true},
		{"[AVHWDeviceContext @ 0x1] No VA display found for any default device.\n", true},
		{"[h264 @ 0x1] Failed to transfer data to output frame: -5.\n", true},
		{"[AVHWDeviceContext @ 0x1] cu->cuInit(0) failed -> CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n", true},
		{"[h264 @ 0x1] decoder->cvdl->cuvidDecodePicture(decoder->decoder, &ctx->pic_params) failed -> " +
			"CUDA_ERROR_ECC_UNCORRECTABLE: x\n", true},
		{"[vist#0:0/h264 @ 0x1] [dec:h264 @ 0x2] No device available for decoder: device type cuda needed for codec " +
			"h264.\n", true},
	} {
		h.paused = time.Time{}
		if got := h.failed(VAAPI, c.messages, newRedactor(""), errors.New("exit status 1")); got != c.want ||
			(h.method(t.Context()) == "") != c.want {
			t.Errorf("%q: %v, then %q", c.messages, got, h.method(t.Context()))
		}
	}
	now = now.Add(hardwarePause)
	if m := h.method(t.Context()); m != VAAPI {
		t.Errorf("after the pause: %q", m)
	}
	if h.failed("", "Device creation failed", newRedactor(""), nil) || h.method(t.Context()) != VAAPI {
		t.Error("a decoder in software says that the device failed")
	}
}

func TestHardwareArgs(t *testing.T) {
	o, err := Options{URL: "rtsp://192.0.2.1/live", Format: NV12}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	from := &route{scheme: SchemeRTSP, address: "rtsp://192.0.2.1/live"}
	chunks := DecoderOptions{Codec: H264, Width: 64, Height: 48}
	for _, method := range []string{VAAPI, CUDA} {
		for _, args := range [][]string{o.ffmpegArgs(from, method, 64, 48), chunks.args(method)} {
			i := slices.Index(args, "-hwaccel")
			if i < 0 || args[i+1] != method || i > slices.Index(args, "-i") ||
				slices.Contains(args, "-hwaccel_output_format") {
				t.Errorf("%s: %q", method, args)
			}
		}
	}
	for _, args := range [][]string{o.ffmpegArgs(from, "", 64, 48), chunks.args("")} {
		if slices.Contains(args, "-hwaccel") {
			t.Errorf("software: %q", args)
		}
	}
}

// ffmpeg uses several threads only for a file read at full speed, unless OneThread returns true.
func TestDecodingThreads(t *testing.T) {
	yes := func() bool { return true }
	for _, c := range []struct {
		scheme string
		o      Options
		one    bool
	}{
		{SchemeFile, Options{}, false}, {SchemeFile, Options{OneThread: yes}, true},
		{SchemeFile, Options{OneThread: func() bool {
			return !yes()
		}}, false},
		{SchemeFile, Options{Realtime: true}, true}, {SchemeRTSP, Options{}, true},
	} {
		c.o.Format = NV12
		args := c.o.ffmpegArgs(&route{scheme: c.scheme, target: "clip.mp4", address: "clip.mp4"}, "", 64, 48)
		args = args[:slices.Index(args, "-i")]
		if i := slices.Index(args, "-threads"); i >= 0 != c.one || c.one && args[i+1] != "1" {
			t.Errorf("%+v: %q", c.o, args)
		}
	}
}

// Without a device, the real ffmpeg fails: the source is opened again in software, and later sources at once.
func TestOpenWithoutADevice(t *testing.T) {
	t.Setenv("LIBVA_DRIVER_NAME", "none")
	var failures []string
	h := NewHardware(VAAPI, func(err error) { failures = append(failures, err.Error()) })
	h.use = VAAPI
	close(h.found)
	for _, url := range []string{sample(t), "exec:cat " + sampleTS(t)} {
		h.paused = time.Time{}
		failures = nil
		for range 2 {
			r := open(t, Options{URL: url, Hardware: h})
			if n, err := readAll(r); n != 60 {
				t.Errorf("%s: %d frames, then %v", url, n, err)
			}
		}
		if len(failures) != 1 || !strings.HasPrefix(failures[0], "vaapi: ") {
			t.Errorf("%s: failures %q", url, failures)
		}
	}
	// Faults of the source are reported as without hardware.
	h.paused = time.Time{}
	if _, err := Open(t.Context(), Options{URL: filepath.Join(t.TempDir(), "none.mp4"),
		Hardware: h}); KindOf(err) != NotFound {
		t.Errorf("no file: %v", err)
	}
}

// sampleTS is sample as a stream.
func sampleTS(t *testing.T) string {
	return clip(t, "sample.ts", "-i", "file:"+sample(t), "-c", "copy", "-f", "mpegts")
}

// A device that fails while decoding ends the reader; sources opened afterwards are decoded in software.
func TestDeviceFailsWhileItDecodes(t *testing.T) {
	uses := videotest.Hardware(t, true)
	failures := 0
	h := NewHardware(HardwareAuto, func(error) { failures++ })
	if f := h.Find(t.Context()); f.Use != VAAPI || len(f.Missing) != 1 ||
		!strings.HasPrefix(f.Missing[0], "cuda cannot") {
		t.Fatalf("%+v", f)
	}
	r := open(t, Options{URL: sample(t), Hardware: h})
	if n, err := readAll(r); n != 3 || KindOf(err) != EndedEarly || failures != 1 || uses() != 1 {
		t.Errorf("%d frames, then %v; %d failures of %d", n, err, failures, uses())
	}
	r = open(t, Options{URL: sample(t), Hardware: h})
	if n, err := readAll(r); n != 60 || failures != 1 || uses() != 1 {
		t.Errorf("in software: %d frames, then %v; %d failures of %d", n, err, failures, uses())
	}
}

// The report about an ffmpeg killed while using the device, as by a driver's crash, contains no secret.
func TestDeviceCrash(t *testing.T) {
	var failures []string
	h := NewHardware(VAAPI, func(err error) { failures = append(failures, err.Error()) })
	h.use = VAAPI
	close(h.found)
	const address = "rtsp://admin:hunter22@192.0.2.1/live?token=abcdef12"
	crash := program(t, `echo '[rtsp @ 0x1] [error] `+address+`: late, admin:hunter22' >&2
echo "[concat @ 0x1] [verbose] Opening '`+address+`' for reading" >&2
kill -9 $$`)
	if _, err := Open(t.Context(), Options{URL: address, Hardware: h, FFmpeg: crash}); KindOf(err) != Killed {
		t.Error(err)
	}
	want := "vaapi: ffmpeg was ended by signal 9 (killed): rtsp://***@192.0.2.1/live?token=*** late, ***"
	if len(failures) != 1 || failures[0] != want {
		t.Errorf("failures %q, want %q", failures, want)
	}
}

// hangs returns a program like ffmpeg in software; with a device, the program creates the file hanging and ignores
// SIGTERM, like an ffmpeg with a hanging driver.
func hangs(t *testing.T) (path, hanging string) {
	hanging = filepath.Join(t.TempDir(), "hanging")
	return program(t, `case " $* " in *" -hwaccel "*) trap '' TERM; : > `+hanging+
		`; exec sleep 1000;; esac; exec ffmpeg "$@"`), hanging
}

// hardware returns hardware with VAAPI, and its reports.
func hardware() (h *Hardware, failures *[]string) {
	failures = new([]string)
	h = NewHardware(VAAPI, func(err error) { *failures = append(*failures, err.Error()) })
	h.use = VAAPI
	close(h.found)
	return h, failures
}

// A driver that hangs is blamed, and the video is decoded in software.
func TestDeviceHangs(t *testing.T) {
	h, failures := hardware()
	h.grace = 50 * time.Millisecond
	ffmpeg, hanging := hangs(t)
	r, err := Open(t.Context(), Options{URL: sample(t), Format: NV12, Hardware: h, FFmpeg: ffmpeg,
		StartTimeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := readAll(r); n != 60 || !slices.Equal(*failures, []string{"vaapi: ffmpeg hangs in it"}) {
		t.Errorf("%d frames, then %v; %q", n, err, *failures)
	}

	h.paused = time.Time{}
	if err := os.Remove(hanging); err != nil {
		t.Fatal(err)
	}
	d, err := NewDecoder(t.Context(), DecoderOptions{Codec: H264, Width: 64, Height: 48, Hardware: h, FFmpeg: ffmpeg})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for {
		if _, err := os.Stat(hanging); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	d.SetDeadline(time.Now())
	if err := d.Start(); !errors.Is(err, os.ErrDeadlineExceeded) || !d.HardwareFailed() || len(*failures) != 2 {
		t.Errorf("a client's video: %v; %q", err, *failures)
	}
}

// A source that hangs is not the device's fault.
func TestSourceHangs(t *testing.T) {
	videotest.Hardware(t, false)
	h, failures := hardware()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := Open(t.Context(), Options{URL: "http://" + silent.Addr().String(), Format: NV12, Hardware: h,
		StartTimeout: time.Second}); KindOf(err) != Timeout {
		t.Error("silent:", err)
	}
	stops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := os.ReadFile(sampleTS(t))
		_, _ = w.Write(data)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer stops.Close()
	r := open(t, Options{URL: stops.URL, Hardware: h, StallTimeout: time.Second})
	defer r.Close()
	if n, err := readAll(r); n < 50 || KindOf(err) != Stalled {
		t.Errorf("stops: %d frames, then %v", n, err)
	}
	d, err := NewDecoder(t.Context(), DecoderOptions{Codec: H264, Width: 64, Height: 48, Hardware: h})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Write([]byte("no frame")); err != nil {
		t.Error(err)
	}
	d.SetDeadline(time.Now().Add(500 * time.Millisecond))
	if err := d.Start(); !errors.Is(err, os.ErrDeadlineExceeded) || d.HardwareFailed() {
		t.Errorf("a client's video: %v", err)
	}
	if len(*failures) > 0 {
		t.Errorf("%q", *failures)
	}
}
