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

// ffmpeg has limits that follow from the largest picture.
func TestLimitsOfFFmpeg(t *testing.T) {
	s := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(sample(t)))))
	defer s.Close()
	r := open(t, Options{URL: s.URL + "/" + filepath.Base(sample(t)), Realtime: true, MaxPixels: 1 << 20})
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", r.ffmpeg.Pid()))
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	for name, want := range map[string]int{"Max address space": ownSpace + spacePerPixel<<20, "Max open files": maxFiles, "Max file size": 0, "Max core file size": 0} {
		f := regexp.MustCompile(name + ` +([0-9a-z]+)`).FindSubmatch(text)
		if f == nil || string(f[1]) != strconv.Itoa(want) {
			t.Errorf("%s: %q; want %d", name, f, want)
		}
	}
}

// An ffmpeg without memory, which may hang, ends with an error that names the setting.
func TestWithoutMemory(t *testing.T) {
	chunk := videotest.Chunks(t, "h264", 640, 480, 1)[0]
	d, err := NewDecoder(t.Context(), DecoderOptions{Codec: H264, Width: 640, Height: 480, space: 400_000 << 10})
	if err == nil {
		defer func() { _ = d.Close() }()
		if err = d.Write(chunk); err == nil {
			for end := time.Now().Add(30 * time.Second); !d.ffmpeg.NearLimit() && time.Now().Before(end); {
				select {
				case <-d.ffmpeg.Done():
					end = time.Now()
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
		d.SetDeadline(time.Now())
		err = d.Start()
	}
	if KindOf(err) != TooLarge || !strings.Contains(err.Error(), "limits.max_pixels") {
		t.Error(err)
	}
	if kind, detail := explain("x: "+noMemory, "", newRedactor("")); kind != TooLarge || detail != needsMemory {
		t.Errorf("%s: %s", kind, detail)
	}
}
