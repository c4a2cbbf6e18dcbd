package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/client"
	"millrace/config"
	"millrace/internal/servertest"
)

// serve runs the folder's own configuration on a free port.
func serve(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("millrace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(text, "millrace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTP, cfg.Log.Level = "127.0.0.1:0", "error"
	s := servertest.Start(t, cfg)
	t.Cleanup(func() {
		_ = s.Stop() // the end of the test shows an error
		if n := s.Memory().Stats().Leases; n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
	return s.Base
}

func TestHearsWhatWasDialled(t *testing.T) {
	url := serve(t)
	file := filepath.Join(t.TempDir(), "keys.wav")
	const number = "0123456789*#ABCD5559"
	var first, again bytes.Buffer
	if err := run(context.Background(), []string{"-url", url, "-dial", number, "-fast", "-o", file},
		&first); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(first.String(), "heard "+number+"\n") {
		t.Errorf("dialled %s\n%s", number, &first)
	}
	if err := run(context.Background(), []string{"-url", url, "-in", file, "-fast"}, &again); err != nil {
		t.Fatal(err)
	}
	if first.String() != again.String() {
		t.Errorf("of the file\n%s\nat first\n%s", &again, &first)
	}
	// The first key sounds from 0.07 s on; the key's windows begin at 0.04, 0.06 ...
	if line, _, _ := strings.Cut(first.String(), "\n"); !strings.HasPrefix(line, "  0.06 s  0") {
		t.Errorf("%q", line)
	}
}

// In real time, the keys are the same; silence and noise are none.
func TestHearsNothingInNoise(t *testing.T) {
	url := serve(t)
	for _, noise := range []string{"0", "0.1", "1"} {
		var out bytes.Buffer
		if err := run(context.Background(), []string{"-url", url, "-dial", "", "-noise", noise}, &out); err != nil ||
			out.String() != "heard \n" {
			t.Errorf("%v %q", err, &out)
		}
	}
	var out bytes.Buffer
	if err := run(context.Background(), []string{"-url", url, "-dial", "42"}, &out); err != nil ||
		!strings.HasSuffix(out.String(), "heard 42\n") {
		t.Errorf("%v %q", err, &out)
	}
}

// The pieces may be of any size: the windows are the same.
func TestPiecesOfAnySize(t *testing.T) {
	url := serve(t)
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	pcm, err := dialled("31415", 0.1, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 37, piece, 3 * piece, 8 * piece} {
		var ends []int64
		s, err := c.Stream(context.Background(), "keys",
			client.StreamOptions{Codec: "pcm16", OnReply: func(r client.Reply) {
				if r.Err != nil || r.Dropped != "" {
					t.Errorf("%d: %v %s", r.Seq, r.Err, r.Dropped)
				}
				if end, ok := r.Params["window_end"].(int64); ok {
					ends = append(ends, end)
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(pcm); at += 2 * size {
			if _, err := s.Send(context.Background(),
				client.Frame{Data: pcm[at:min(at+2*size, len(pcm))]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		windows := int64((len(pcm)/2-width)/hop + 1)
		if last := (windows-1)*hop + width - 1; len(ends) == 0 || ends[len(ends)-1] != last || !slices.IsSorted(ends) {
			t.Errorf("pieces of %d: the last of %d windows ends at %v, want %d", size, windows, ends, last)
		}
		if size <= hop && int64(len(ends)) != windows {
			t.Errorf("pieces of %d: %d answers for %d windows", size, len(ends), windows)
		}
	}
}

func TestFilesOfTheFolder(t *testing.T) {
	dir := t.TempDir()
	if err := exportTo(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keys.onnx", "keys.txt"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes: go generate ./examples/audio (%v)", name, err)
		}
	}
}

func TestWAV(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.wav")
	pcm, err := dialled("7", 0.1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeWAV(path, pcm); err != nil {
		t.Fatal(err)
	}
	if got, err := readWAV(path); err != nil || !bytes.Equal(got, pcm) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(pcm), err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stereo := slices.Clone(whole)
	binary.LittleEndian.PutUint16(stereo[22:], 2)
	extra := slices.Concat(whole[:36], []byte("LIST\x03\x00\x00\x00abc\x00"), whole[36:]) // of odd length
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"another chunk": {extra, ""},
		"cut short":     {whole[:101], ""},
		"stereo":        {stereo, "convert it with ffmpeg -i"},
		"no samples":    {whole[:36], "has no samples"},
		"no WAV":        {[]byte("ID3 or whatever it is"), "is not a WAV file"},
		"huge chunk":    {append(slices.Clone(whole[:12]), "data\xff\xff\xff\xff"...), "convert it"},
	} {
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readWAV(path)
		if c.want == "" && (err != nil || !bytes.HasPrefix(pcm, got) || len(got)%2 != 0) ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestDialled(t *testing.T) {
	if _, err := dialled("12x", 0, 1); err == nil || !strings.Contains(err.Error(), `'x' is not a key`) {
		t.Error(err)
	}
	pcm, err := dialled("1", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	var most float64
	for i := 0; i < len(pcm); i += 2 {
		most = max(most, math.Abs(float64(int16(binary.LittleEndian.Uint16(pcm[i:])))/math.MaxInt16))
	}
	if len(pcm) != 2*(press+2*pause) || most < 0.45 || most > 0.5 {
		t.Errorf("%d bytes, at most %v", len(pcm), most)
	}
}
