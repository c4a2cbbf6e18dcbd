// Package videotest makes video for tests: chunks of inter-coded video, with ffmpeg's
// encoders, and a camera over RTSP, with GStreamer's server.
package videotest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"millrace/internal/testneeds"
)

// encoders make chunks like browsers: no frame depends on a later frame, and every tenth is a key frame.
var encoders = map[string][]string{
	"h264": {"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-x264-params",
		"aud=1:keyint=10:min-keyint=10:scenecut=0", "-f", "h264"},
	"vp8": {"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-auto-alt-ref", "0",
		"-g", "10", "-f", "ivf"},
	"vp9": {"-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-g", "10", "-f",
		"ivf"},
	"av1": {"-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-g", "10", "-f",
		"ivf"},
}

// Codecs are the codecs of Chunks.
var Codecs = []string{"h264", "vp8", "vp9", "av1"}

// Luma is the brightness of all pixels of the n-th frame of Chunks.
func Luma(n int) int { return 16 + 4*(n%50) }

// encoded are the chunks by the arguments of Chunks: several tests of a package send the same chunks.
var encoded struct {
	sync.Mutex
	chunks map[string][][]byte
}

// Chunks encodes n frames of w by h, each of one brightness; more are further arguments of the encoder.
func Chunks(t testing.TB, codec string, w, h, n int, more ...string) (list [][]byte) {
	t.Helper()
	key := fmt.Sprintf("%s %d %d %d %q", codec, w, h, n, more)
	encoded.Lock()
	defer encoded.Unlock()
	if encoded.chunks[key] == nil {
		made := encode(t, codec, w, h, n, more...)
		if encoded.chunks == nil {
			encoded.chunks = map[string][][]byte{}
		}
		encoded.chunks[key] = made
	}
	for _, c := range encoded.chunks[key] {
		list = append(list, bytes.Clone(c)) // tests change chunks
	}
	return list
}

func encode(t testing.TB, codec string, w, h, n int, more ...string) [][]byte {
	t.Helper()
	in := fmt.Sprintf("color=black:size=%dx%d:rate=30,format=yuv420p,geq=lum='16+4*mod(N,50)':cb=128:cr=128", w, h)
	out := filepath.Join(t.TempDir(), codec)
	args := append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-f", "lavfi", "-i", in,
		"-frames:v", fmt.Sprint(n)}, encoders[codec]...)
	args = append(append(args, more...), out)
	if said, err := exec.Command(testneeds.Program(t, "ffmpeg"), args...).CombinedOutput(); err != nil {
		t.Fatalf("ffmpeg %v: %v\n%s(is ffmpeg installed? apt-get install ffmpeg)", args, err, said)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	list := split(codec, b)
	if len(list) != n {
		t.Fatalf("%d chunks of %s, want %d", len(list), codec, n)
	}
	return list
}

func split(codec string, b []byte) (list [][]byte) {
	if codec == "h264" {
		aud := []byte{0, 0, 0, 1, 9} // in front of each picture
		for _, unit := range bytes.Split(b, aud)[1:] {
			list = append(list, append(bytes.Clone(aud), unit...))
		}
		return list
	}
	for b = b[32:]; len(b) > 0; {
		size := binary.LittleEndian.Uint32(b)
		list = append(list, b[12:12+size])
		b = b[12+size:]
	}
	return list
}

// Hidden returns the chunks of Chunks, followed by n chunks of VP9 of w by h that are decoded but not shown; each
// takes some milliseconds to decode.
func Hidden(t testing.TB, w, h, shown, n int) (list [][]byte) {
	t.Helper()
	list = Chunks(t, "vp9", w, h, shown, "-g", "1")
	costly := bytes.Clone(Chunks(t, "vp9", w, h, 1, "-vf", "noise=alls=100", "-b:v", "20M")[0])
	if costly[0]&^1 != 0x82 { // marker, profile 0, key frame, shown: 6.2 of the specification of VP9
		t.Fatalf("the first byte is %#x", costly[0])
	}
	costly[0] &^= 2
	for range n {
		list = append(list, costly)
	}
	return list
}

// IVF returns a file of the chunks; a chunk's time is its number, in 1/30 s.
func IVF(fourcc string, w, h int, list [][]byte) []byte {
	le := binary.LittleEndian
	b := append([]byte("DKIF\x00\x00\x20\x00"), fourcc...)
	b = le.AppendUint16(le.AppendUint16(b, uint16(w)), uint16(h))
	b = le.AppendUint32(le.AppendUint32(b, 30), 1)
	b = le.AppendUint64(b, uint64(len(list)))
	for i, c := range list {
		b = append(le.AppendUint64(le.AppendUint32(b, uint32(len(c))), uint64(i)), c...)
	}
	return b
}
