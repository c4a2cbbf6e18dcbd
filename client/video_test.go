package client_test

import (
	"bytes"
	"os/exec"
	"slices"
	"testing"

	"millrace/client"
	"millrace/internal/testneeds"
	"millrace/stream"
)

// chunks returns access units of H.264, each with its delimiter; every tenth is a key frame.
func chunks(t *testing.T, n string) (out [][]byte) {
	t.Helper()
	film, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-v", "error", "-f", "lavfi", "-i",
		"testsrc=size=160x120:rate=10", "-frames:v", n,
		"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "10",
		"-x264-params", "aud=1:repeat-headers=1", "-f", "h264", "-").Output()
	if err != nil {
		t.Fatalf("ffmpeg does not encode H.264: %v", err)
	}
	delimiter := []byte{0, 0, 0, 1, 9}
	for len(film) > 0 {
		end := len(film)
		if i := bytes.Index(film[1:], delimiter); i >= 0 {
			end = i + 1
		}
		out = append(out, film[:end])
		film = film[end:]
	}
	return out
}

// splitParameterSets separates the parameter sets of a key frame from the rest.
func splitParameterSets(t *testing.T, chunk []byte) (sets, rest []byte) {
	t.Helper()
	from, last := bytes.Index(chunk, []byte{0, 0, 0, 1, 0x67}), bytes.Index(chunk, []byte{0, 0, 0, 1, 0x68})
	if from < 0 || last < from {
		t.Fatalf("no parameter sets in % x", chunk[:64])
	}
	to := last + 5 + bytes.Index(chunk[last+5:], []byte{0, 0, 1})
	if chunk[to-1] == 0 {
		to--
	}
	return chunk[from:to], slices.Concat(chunk[:from], chunk[to:])
}

// A video, chunk by chunk, with parameter sets sent separately: each chunk has a result with the size of its picture.
func TestSessionVideo(t *testing.T) {
	c, _ := serve(t, "eyes=motion,width=64,height=48")
	s := session(t, c, client.SessionOptions{})
	ctx := testTimeout(t)
	st := openStream(t, s, "eyes", client.StreamOptions{Codec: "h264", Policy: stream.Policy{Mode: stream.Every},
		Buffer: 100, OnError: func(err error) {
			t.Error(err)
		}})
	all := chunks(t, "30")
	if len(all) != 30 {
		t.Fatalf("%d chunks", len(all))
	}
	for i, data := range all {
		if i%10 == 0 {
			var sets []byte
			sets, data = splitParameterSets(t, data)
			if i == 0 {
				if err := st.Configure("h264", sets); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := st.Send(ctx, client.Frame{Data: data, Key: i%10 == 0, Last: i == len(all)-1}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for r := range st.Replies() {
		if r.Seq != uint64(n) || !r.Answered() || r.Width != 160 || r.Height != 120 {
			t.Errorf("%+v", r)
		}
		n++
	}
	if n != len(all) || st.Err() != nil {
		t.Errorf("%d replies, %v", n, st.Err())
	}
}
