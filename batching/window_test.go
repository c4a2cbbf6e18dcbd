package batching

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"millrace/stream"
	windows "millrace/stream/window"
)

// Overlapping windows of one stream are each copied whole into the batch, one after the other, together with windows
// of other streams.
func TestPrepareLaysOutWindows(t *testing.T) {
	m := &stream.Model{Name: "m", MaxBatch: 4,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{3}}}}
	g := newGroup(t, m, Adaptive, 1, 8)
	m.Assembly = &windows.Window{Length: 3, Hop: 2, Memory: g.mem}
	a, _ := g.open(t, window)
	b, _ := g.open(t, window)
	send := func(s *stream.Stream, rows string) {
		if err := s.Submit(stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{
			{Name: "x", Datatype: stream.Uint8, Shape: []int{len(rows)}, Data: []byte(rows)}}}); err != nil {
			t.Fatal(err)
		}
	}
	send(a, "ab")
	send(a, "cdefg")
	send(b, "123")
	batch := gather(t, g, 1)
	if !batch.Prepare(nil) {
		t.Fatal("nothing to run")
	}
	if got := string(batch.Inputs[0].Data); got != "abccdeefg123" || batch.Rows != 4 ||
		!slices.Equal(batch.Inputs[0].Shape, []int{4, 3}) {
		t.Fatalf("%q, %d rows, %v", got, batch.Rows, batch.Inputs[0].Shape)
	}
	batch.FailAll(errors.New("enough"))
	g.pool.Put(batch)
	a.Close(stream.ByClient)
	b.Close(stream.ByClient)
	if n := g.mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}

// Each picture of a window is decoded into its own place; boxes refer to the newest picture. An undecodable picture
// fails every window that contains the picture.
func TestPrepareDecodesWindowsOfPictures(t *testing.T) {
	m := &stream.Model{
		Name: "m", MaxBatch: 2, Image: &stream.ImageSpec{Width: 1, Height: 1},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{3, 1, 1, 2}}},
	}
	g := newGroup(t, m, Hard, 2, 8)
	m.Assembly = &windows.Window{Length: 3, Hop: 1, Memory: g.mem}
	s, k := g.open(t, window)
	picture := func(name string) {
		l, _ := g.mem.Copy([]byte(name))
		if err := s.Submit(stream.Frame{Codec: stream.JPEG, Payload: l.Bytes(), Lease: l,
			Width: len(name)}); err != nil {
			t.Fatal(err)
		}
	}
	decode := func(r *stream.Request, dst []byte) error {
		if bytes.Equal(r.Payload, []byte("no")) {
			return stream.Errorf(stream.Unsupported, "frame", "bad picture")
		}
		copy(dst, r.Payload)
		r.SentWidth, r.MapX = r.Width, [2]float64{float64(r.Width), 0}
		return nil
	}
	for _, name := range []string{"aa", "bb", "cc", "dd"} {
		picture(name)
	}
	batch := gather(t, g, 1)
	if !batch.Prepare(decode) {
		t.Fatal("nothing to run")
	}
	if got := string(batch.Inputs[0].Data); got != "aabbccbbccdd" {
		t.Fatalf("%q", got)
	}
	if r := batch.Requests[0]; string(r.Payload) != "cc" || r.SentWidth != 2 || r.MapX[0] != 2 {
		t.Fatalf("%q %d %v", r.Payload, r.SentWidth, r.MapX)
	}
	batch.FailAll(errors.New("enough"))
	g.pool.Put(batch)
	for _, name := range []string{"no", "ff", "gg", "hh"} {
		picture(name)
	}
	for range 2 {
		batch = gather(t, g, 1)
		good := batch.Prepare(decode)
		batch.FailAll(errors.New("enough"))
		g.pool.Put(batch)
		if want := len(k.results) == 8; good != want {
			t.Fatalf("good %v after %q", good, k.results)
		}
	}
	want := []string{"", "", "error: internal", "error: internal", "error: unsupported", "error: unsupported",
		"error: unsupported", "error: internal"}
	for i := range want[:2] {
		want[i] = "filling"
	}
	if fmt.Sprint(k.results) != fmt.Sprint(want) {
		t.Fatalf("%q\nwant %q", k.results, want)
	}
	s.Close(stream.ByClient)
	if n := g.mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}

func gather(t *testing.T, g *group, idle int) *Batch {
	t.Helper()
	b, _, err := g.intake.Gather(stream.Now().Add(time.Millisecond), idle, nil)
	if err != nil || b == nil {
		t.Fatalf("gathered %v, %v", b, err)
	}
	return b
}
