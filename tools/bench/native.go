package main

import (
	"context"
	"time"

	"millrace/stream"
)

// nativeCall compares the time of a call in this process with passing a pointer to another goroutine and back.
func nativeCall(b *bench) error {
	there, back := make(chan *int), make(chan *int)
	go func() { // ends with there
		for p := range there {
			back <- p
		}
	}()
	defer close(there)
	one := new(int)
	bare := func(d time.Duration) (float64, error) {
		return nanoseconds(d, func() error {
			there <- one
			<-back
			return nil
		})
	}
	inputs := []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, 16}, Data: make([]byte, 64)}}
	client, ctx := b.server.Native(), context.Background()
	ours := func(d time.Duration) (float64, error) {
		return nanoseconds(d, func() error {
			r, err := client.Infer(ctx, "identity", inputs)
			if err == nil {
				r.Release()
			}
			return err
		})
	}
	row, err := b.pair("native call, against a channel round trip", "ns", bare, ours)
	if err != nil {
		return err
	}
	b.add(row.atMost(3))
	return nil
}

// nanoseconds returns the mean time of f, repeated for d.
func nanoseconds(d time.Duration, f func() error) (float64, error) {
	began := time.Now()
	for n := 1; ; n++ {
		if err := f(); err != nil {
			return 0, err
		}
		if n%128 == 0 || d < 10*time.Millisecond {
			if t := time.Since(began); t >= d {
				return float64(t) / float64(n), nil
			}
		}
	}
}
