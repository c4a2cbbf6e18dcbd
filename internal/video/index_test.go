package video

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// indexed writes a fragmented MP4 as an MP4 with an index.
func indexed(t *testing.T, file []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Index(&out, bytes.NewReader(append(file, "behind"...)), int64(len(file))); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// topBoxes returns the names of the boxes of a file. The last box is mdat when the size of mdat has 64 bits.
func topBoxes(t *testing.T, file []byte) (names []string) {
	t.Helper()
	if i := bytes.Index(file, []byte("\x00\x00\x00\x01mdat")); i >= 0 {
		file, names = file[:i], append(names, "mdat")
	}
	var before []string
	if err := boxes(file, func(name string, _ int, _ []byte) error {
		before = append(before, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return append(before, names...)
}

// An indexed video has the index in front, and for ffmpeg the packets and pictures of the fragmented video.
func TestIndex(t *testing.T) {
	ffmpeg, ffprobe := testneeds.Program(t, "ffmpeg"), testneeds.Program(t, "ffprobe")
	run := func(program string, args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	try := func(name string, frames int, make func(dir string) []byte) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := make(dir)
			before, after := filepath.Join(dir, "before.mp4"), filepath.Join(dir, "after.mp4")
			whole := indexed(t, file)
			for path, data := range map[string][]byte{before: file, after: whole} {
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if !Fragmented(bytes.NewReader(file)) || Fragmented(bytes.NewReader(whole)) {
				t.Error("the wrong video is said to be fragmented")
			}
			got := strings.Join(topBoxes(t, whole), " ")
			if got != "ftyp moov mdat" || bytes.Contains(whole, []byte("mvex")) {
				t.Error(got)
			}
			packets := func(path string) string {
				out := run(ffmpeg, "-nostdin", "-v", "warning", "-copyts", "-i", path, "-c", "copy", "-f",
					"framemd5", "-")
				// A fragment has a length of its own, and in the tables a picture lasts until the next.
				return regexp.MustCompile(`(?m)^(0,[^,]*,[^,]*),[^,]*,`).ReplaceAllString(out, "$1, length,")
			}
			was, is := packets(before), packets(after)
			if was != is || strings.Count(is, "\n0,") != frames {
				t.Errorf("other packets:\n%s\nwant\n%s", is, was)
			}
			keys := func(path string) string {
				return run(ffprobe, "-v", "warning", "-show_entries", "packet=pts,dts,flags,size", "-of", "csv=p=0",
					path)
			}
			if was, is := keys(before), keys(after); was != is || !strings.Contains(is, "K_") {
				t.Errorf("other key frames:\n%s\nwant\n%s", is, was)
			}
			// ffmpeg ignores a list of all pictures.
			listed := binary.BigEndian.Uint32(whole[bytes.Index(whole, []byte("stss"))+8:])
			if n := strings.Count(keys(before), "K_"); int(listed) != n {
				t.Errorf("%d key frames are listed, of %d", listed, n)
			}
			info := run(ffprobe, "-v", "warning", "-count_frames", "-show_entries",
				"stream=nb_frames,nb_read_frames,duration", "-of", "csv=p=0", after)
			if n := strings.Split(strings.TrimSpace(info), ","); len(n) != 3 || n[1] != n[2] {
				t.Errorf("ffprobe: %s", info)
			}
			run(ffmpeg, "-nostdin", "-v", "warning", "-xerror", "-i", after, "-f", "null", "-")
		})
	}
	for _, codec := range videotest.Codecs {
		try(codec, 12, func(string) []byte { return mux(t, codec, videotest.Chunks(t, codec, 98, 66, 12)) })
	}
	try("B-frames of ffmpeg", 100, func(dir string) []byte {
		path := filepath.Join(dir, "b.mp4")
		args := append([]string{"-nostdin", "-v", "error", "-f", "lavfi", "-i",
			"testsrc2=size=64x48:rate=25:duration=4", "-c:v", "libx264", "-g", "20", "-bf", "2", "-pix_fmt", "yuv420p",
			"-f", "mp4", "-use_editlist", "0", "-movflags", "empty_moov+default_base_moof+frag_every_frame"}, path)
		if out, err := exec.Command(ffmpeg, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		file, err := os.ReadFile(path)
		if i := bytes.Index(file, []byte("mfra")); i > 0 {
			file = file[:i-4]
		}
		if err != nil {
			t.Fatal(err)
		}
		return file
	})
}

// A video of more than 2^32 ticks of its time scale has its length.
func TestIndexOfLongVideo(t *testing.T) {
	chunk := videotest.Chunks(t, VP8, 64, 48, 1)[0]
	info, err := ParseChunk(VP8, chunk)
	if err != nil {
		t.Fatal(err)
	}
	var file []byte
	m := NewMuxer(VP8)
	for i := range 9 {
		p, err := m.Fragment(info, nil, chunk, time.Duration(i)*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			file = append(file, p.Header.Bytes...)
		}
		PutTime(p.Data, p.TimeAt(), int64(i)*1000*muxerTick)
		file = append(file, p.Data...)
	}
	path := filepath.Join(t.TempDir(), "long.mp4")
	if err := os.WriteFile(path, indexed(t, file), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "warning", "-show_entries",
		"format=duration", "-of", "csv=p=0", path).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || !strings.HasPrefix(got, "8001.") {
		t.Errorf("%v %s", err, got)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x08moov"))
	f.Fuzz(func(_ *testing.T, file []byte) {
		var out bytes.Buffer
		_ = Index(&out, bytes.NewReader(file), int64(len(file)))
		Fragmented(bytes.NewReader(file))
	})
}

// BenchmarkIndex writes the index of 10 minutes of 3 Mbit/s, 30 pictures a second.
func BenchmarkIndex(b *testing.B) {
	m := NewMuxer(VP8)
	chunk := append(videotest.Chunks(b, VP8, 64, 48, 1)[0], make([]byte, 3_000_000/8/30)...)
	info, err := ParseChunk(VP8, chunk)
	if err != nil {
		b.Fatal(err)
	}
	file, err := os.Create(filepath.Join(b.TempDir(), "a.mp4"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	size := int64(0)
	for i := range 10 * 60 * 30 {
		p, err := m.Fragment(info, nil, chunk, time.Duration(i)*time.Second/30)
		if err != nil {
			b.Fatal(err)
		}
		if i == 0 {
			p.Data = append(p.Header.Bytes, p.Data...)
		}
		n, err := file.Write(p.Data)
		if size += int64(n); err != nil {
			b.Fatal(err)
		}
	}
	to, err := os.Create(file.Name() + ".new")
	if err != nil {
		b.Fatal(err)
	}
	defer to.Close()
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = to.Seek(0, 0)
		if err := Index(to, file, size); err != nil {
			b.Fatal(err)
		}
		_ = to.Sync()
	}
}
