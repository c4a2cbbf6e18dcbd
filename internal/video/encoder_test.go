package video

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/child"
)

// encodeAll encodes n pictures of a moving edge, 40 ms apart, and returns the fragments.
func encodeAll(t *testing.T, e *Encoder, n int) (list []Fragment) {
	t.Helper()
	w, h := e.o.Width, e.o.Height
	for i := range n {
		rgb := bytes.Repeat([]byte{30}, 3*w*h)
		for y := range h {
			for x := range min(w, 2*i) {
				rgb[3*(y*w+x)] = 220
			}
		}
		f, err := e.Encode(rgb, time.Hour+time.Duration(i)*40*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		f.Data = bytes.Clone(f.Data)
		list = append(list, f)
	}
	return list
}

// Each picture returns as a fragment before the next picture, with a key frame at least once a second. ffmpeg decodes
// the header and the fragments from any key frame on.
func TestEncoder(t *testing.T) {
	e, err := NewEncoder(t.Context(), EncoderOptions{Width: 161, Height: 95, Sandbox: child.SandboxError() == nil})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	list := encodeAll(t, e, 60)
	var keys []int
	for i, f := range list {
		if f.Key {
			keys = append(keys, i)
		}
		if f.Header != list[0].Header || f.PTS != time.Duration(i)*40*time.Millisecond {
			t.Errorf("fragment %d: %v %p", i, f.PTS, f.Header)
		}
	}
	if len(keys) != 3 || keys[0] != 0 || keys[1] != 25 || keys[2] != 50 {
		t.Errorf("key frames %v", keys)
	}
	if got := list[0].Header.MIME(); !strings.HasPrefix(got, `video/mp4; codecs="avc1.42C0`) {
		t.Errorf("%s", got)
	}
	var file []byte
	for _, f := range list[25:] {
		file = append(file, f.Data...)
	}
	file = append(bytes.Clone(list[0].Header.Bytes), file...)
	path := filepath.Join(t.TempDir(), "from.mp4")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := ffmpeg(t, "-xerror", "-i", path, "-f", "null", "-"); len(said) > 0 {
		t.Errorf("%s", said)
	}
	shown := string(tool(t, "ffprobe", "-v", "error", "-count_frames", "-select_streams", "v", "-show_entries",
		"stream=width,height,nb_read_frames,codec_name,profile,color_space", "-of", "csv=p=0", path))
	if want := "h264,Constrained Baseline,162,96,bt709,35\n"; shown != want {
		t.Errorf("ffprobe: %q, want %q", shown, want)
	}
	n := 0
	if err := ReadMP4(bufio.NewReader(bytes.NewReader(file)), func(f Fragment) {
		if want := list[25+n]; f.PTS != want.PTS || f.Key != want.Key || f.TimeAt() != want.TimeAt() {
			t.Errorf("fragment %d is read as %+v", n, f)
		}
		n++
	}); err != io.EOF || n != 35 {
		t.Errorf("%d fragments: %v", n, err)
	}
}

// Without a device, and after the failure of an encoder of a device, libx264 encodes.
func TestEncoderWithoutDevice(t *testing.T) {
	var told []error
	now := time.Now()
	h := NewHardware(HardwareAuto, func(err error) { told = append(told, err) })
	h.now = func() time.Time { return now }
	h.encode = findEncoding(t.Context(), HardwareAuto)
	if h.encode != "" {
		t.Skipf("this machine encodes with %s", h.encode)
	}
	close(h.found)
	h.encode = VAAPI // a device that is gone
	encode := func() (string, error) {
		e, err := NewEncoder(t.Context(), EncoderOptions{Width: 64, Height: 48, Hardware: h})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		_, err = e.Encode(make([]byte, 3*64*48), 0)
		return e.Name, err
	}
	if name, err := encode(); name != "h264_vaapi" || err == nil || len(told) != 1 {
		t.Errorf("%s: %v, told %v", name, err, told)
	}
	if name, err := encode(); name != "libx264" || err != nil {
		t.Errorf("after a failure: %s: %v", name, err)
	}
	now = now.Add(hardwarePause)
	if name, _ := encode(); name != "h264_vaapi" {
		t.Errorf("after the pause: %s", name)
	}
}

// Pictures of clients with large or odd sides are encoded with even sides, and with at most maxEncodedPixels.
func TestEncodedSize(t *testing.T) {
	for _, c := range [][4]int{{1280, 720, 1280, 720}, {1, 1, 2, 2}, {161, 95, 162, 96}, {8192, 4608, 4096, 2304},
		{16384, 100, 16384, 100}, {10000, 10000, 3072, 3072}} {
		if w, h := encodedSize(c[0], c[1]); w != c[2] || h != c[3] {
			t.Errorf("%d x %d becomes %d x %d, want %d x %d", c[0], c[1], w, h, c[2], c[3])
		}
	}
}
