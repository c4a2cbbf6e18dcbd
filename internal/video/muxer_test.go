package video

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/testneeds"
	"millrace/internal/video/videotest"
)

// mux makes an MP4 of chunks, a frame each 40 ms.
func mux(t *testing.T, codec string, list [][]byte) (file []byte) {
	t.Helper()
	m := NewMuxer(codec)
	for i, c := range list {
		info, err := ParseChunk(codec, c)
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Fragment(info, nil, c, time.Duration(i)*40*time.Millisecond)
		if err != nil {
			t.Fatalf("%s %d: %v", codec, i, err)
		}
		if i == 0 {
			file = append(file, p.Header.Bytes...)
		}
		file = append(file, p.Data...)
	}
	return file
}

// configBox returns the box with the codec's parameters in an MP4.
func configBox(t *testing.T, file []byte, name string) []byte {
	t.Helper()
	i := bytes.Index(file, []byte(name))
	if i < 4 {
		t.Fatalf("no box %s", name)
	}
	return file[i-4:][:binary.BigEndian.Uint32(file[i-4:])]
}

// ffmpeg decodes the video of a Muxer without a complaint, and writes the same codec parameters itself.
func TestMuxer(t *testing.T) {
	ffmpeg := testneeds.Program(t, "ffmpeg")
	boxes := map[string]string{H264: "avcC", VP8: "", VP9: "vpcC", AV1: "av1C"} // ffmpeg writes no VP8
	try := func(name, codec string, more ...string) {
		t.Run(name, func(t *testing.T) {
			list := videotest.Chunks(t, codec, 98, 66, 12, more...)
			dir := t.TempDir()
			own := filepath.Join(dir, "own.mp4")
			file := mux(t, codec, list)
			if err := os.WriteFile(own, file, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(ffmpeg, "-nostdin", "-v", "warning", "-xerror", "-copyts", "-i", own, "-f",
				"framecrc", "-").CombinedOutput()
			text := string(out)
			if err != nil || strings.Count(text, "\n0,") != 12 || !strings.Contains(text, "98x66") ||
				strings.Contains(text, "@") {
				t.Errorf("%v: %s", err, text)
			}
			if boxes[codec] == "" {
				return
			}
			raw, theirs := filepath.Join(dir, "raw"), filepath.Join(dir, "theirs.mp4")
			data := bytes.Join(list, nil)
			if codec != H264 {
				data = appendIVFHeader(nil, fourccs[codec], 98, 66, 25)
				for i, c := range list {
					head := make([]byte, 12)
					putIVFFrame(head, len(c), uint64(i))
					data = append(append(data, head...), c...)
				}
			}
			if err := os.WriteFile(raw, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(ffmpeg, "-nostdin", "-v", "error", "-i", raw, "-c", "copy", theirs).
				CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			want, err := os.ReadFile(theirs)
			if err != nil {
				t.Fatal(err)
			}
			got, wanted := configBox(t, file, boxes[codec]), configBox(t, want, boxes[codec])
			if codec == VP9 { // the level by the bit rate, and the colours in the stream
				got, wanted = got[14:15], wanted[14:15]
			}
			if !bytes.Equal(got, wanted) {
				t.Errorf("\n% x, want\n% x", got, wanted)
			}
		})
	}
	for _, codec := range videotest.Codecs {
		try(codec, codec)
	}
	try("h264 high 4:2:2", H264, "-pix_fmt", "yuv422p", "-profile:v", "high422")
	try("vp9 4:4:4 of 10 bits", VP9, "-pix_fmt", "yuv444p10le")
	try("av1 of 10 bits", AV1, "-pix_fmt", "yuv420p10le")
}

// A key frame of another size has another header; a video begins with a key frame; times that stand rise.
func TestMuxerHeaders(t *testing.T) {
	m := NewMuxer(VP8)
	give := func(c []byte, at time.Duration) (Fragment, error) {
		info, err := ParseChunk(VP8, c)
		if err != nil {
			t.Fatal(err)
		}
		return m.Fragment(info, nil, c, at)
	}
	small, large := videotest.Chunks(t, VP8, 64, 48, 2), videotest.Chunks(t, VP8, 96, 48, 1)
	if _, err := give(small[1], 0); err == nil {
		t.Error("a video without a key frame")
	}
	a, err := give(small[0], time.Second)
	if err != nil || !a.Key || a.DTS != time.Second {
		t.Fatal(a, err)
	}
	b, err := give(small[1], time.Second)
	if err != nil || b.Header != a.Header || b.Key || b.Ticks != a.Ticks+1 {
		t.Error(b, err)
	}
	c, err := give(large[0], 3*time.Second/2)
	if err != nil || c.Header == a.Header || c.Length != time.Second/2-time.Microsecond {
		t.Error(c, err)
	}
	if _, err = give(large[0], 1<<62); err == nil {
		t.Error("a time beyond all sums")
	}
}

func FuzzMuxer(f *testing.F) {
	for _, codec := range videotest.Codecs {
		f.Add(codec, videotest.Chunks(f, codec, 64, 48, 2)[0])
	}
	f.Fuzz(func(_ *testing.T, codec string, chunk []byte) {
		info, err := ParseChunk(codec, chunk)
		if err == nil {
			_, _ = NewMuxer(codec).Fragment(info, nil, chunk, 0)
		}
	})
}
