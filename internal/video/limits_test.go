package video

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/internal/video/videotest"
)

func TestLimitsOfFFmpeg(t *testing.T) {
	s := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(sample(t)))))
	defer s.Close()
	r := open(t, Options{URL: s.URL + "/" + filepath.Base(sample(t)), Realtime: true, MaxPixels: 1 << 20})
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", r.ffmpeg.Pid()))
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	for name, want := range map[string]int{"Max address space": ownSpace + spacePerPixel<<20,
		"Max open files": maxFiles, "Max file size": 0, "Max core file size": 1} {
		f := regexp.MustCompile(name + ` +([0-9a-z]+)`).FindSubmatch(text)
		if f == nil || string(f[1]) != strconv.Itoa(want) {
			t.Errorf("%s: %q; want %d", name, f, want)
		}
	}
}

// An ffmpeg without memory, even if hanging, ends with an error that names the setting.
func TestWithoutMemory(t *testing.T) {
	small, large := videotest.Chunks(t, "h264", 64, 48, 1)[0], videotest.Chunks(t, "h264", 1920, 1080, 1)[0]
	// The libraries of each system need another amount, and the large picture some more.
	least, most := peakSpace(t, 64, 48, small), peakSpace(t, 1920, 1080, large)
	d, err := NewDecoder(t.Context(), DecoderOptions{Codec: H264, Width: 1920, Height: 1080,
		space: least + (most-least)/4})
	if err == nil {
		defer func() { _ = d.Close() }()
		if err = d.Write(large); err == nil {
			for end := time.Now().Add(30 * time.Second); !d.ffmpeg.NearLimit() && time.Now().Before(end); {
				select {
				case <-d.ffmpeg.Done():
					end = time.Now()
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
		d.SetDeadline(time.Now().Add(time.Second)) // near its limit, ffmpeg may still be about to end
		err = d.Start()
	}
	if KindOf(err) != TooLarge || !strings.Contains(err.Error(), "limits.max_pixels") {
		t.Errorf("%v, with %d KiB between %d and %d", err, (least+(most-least)/4)>>10, least>>10, most>>10)
	}
	if kind, detail := explain("x: "+noMemory, ""); kind != TooLarge || detail != needsMemory {
		t.Errorf("%s: %s", kind, detail)
	}
}

// peakSpace returns the peak address space of an ffmpeg that has decoded a picture, in bytes.
func peakSpace(t *testing.T, width, height int, chunk []byte) uint64 {
	t.Helper()
	d, err := NewDecoder(t.Context(), DecoderOptions{Codec: H264, Width: width, Height: height})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Write(chunk); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.ffmpeg.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	var peak uint64
	_, after, _ := strings.Cut(string(text), "VmPeak:")
	if _, err := fmt.Sscanf(after, "%d kB", &peak); err != nil {
		t.Fatal(err)
	}
	return peak << 10
}
