package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"millrace/client/load"
	"millrace/workers"
)

const (
	bombClients = 4
	bombRate    = 30 // frames per second of the stream beside the attackers
)

// bombs are the pictures of the attackers, and the least rate of the stream beside the attackers, as a part of the rate
// without attackers. The first two have the longest decoding time within the bounds. The last is below the cost from
// which a picture is decoded outside the workers, so that only the share of an account in a batch holds it back.
var bombs = []struct {
	picture string
	clients int
	kept    float64
}{
	{"PNG of 4096x4096", bombClients, 0.9},
	{"JPEG of 8192x8192, 100 scans", bombClients, 0.9},
	{"JPEG of 1920x1080", 4 * bombClients, 0.5},
}

// bomb measures the remaining rate of a stream of pictures beside attackers. The attackers send their pictures, each as
// soon as the last is answered, to a model with one worker. The attackers have one core.
func bomb(b *bench) error {
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pictures := map[string][]byte{"vga.jpg": photo(640, 480), "PNG of 4096x4096": flatPNG(4096, 4096, 6),
		"JPEG of 8192x8192, 100 scans": scansJPEG(8192, 100), "JPEG of 1920x1080": photo(1920, 1080)}
	for name, data := range pictures {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	t, err := serve(nil, workers.Config{Name: "find", Source: "motion", Instances: 1})
	if err != nil {
		return err
	}
	good, err := startChild()
	if err != nil {
		return errors.Join(err, t.end())
	}
	defer good.end()
	bad, err := startPinned(runtime.NumCPU() - 1)
	if err != nil {
		return errors.Join(err, t.end())
	}
	defer bad.end()
	length := max(6*b.round, 200*time.Millisecond)
	stream := load.Config{
		URL: "http://" + t.addr, Model: "find", Streams: 1, Rate: bombRate, File: filepath.Join(dir, "vga.jpg"),
		Duration: length, Warmup: length / 6, Grace: 10 * time.Second,
		Options: map[string]string{"policy": "latest"}, Header: map[string]string{"X-Forwarded-For": "192.0.2.1"},
	}
	for _, of := range bombs {
		name := of.picture
		attack := load.Config{
			URL: stream.URL, Protocol: load.RESTProtocol, Model: "find", Streams: of.clients, Window: 1,
			File: filepath.Join(dir, name), Duration: length + length/3, Grace: 30 * time.Second,
			Header: map[string]string{"X-Forwarded-For": "192.0.2.2"},
		}
		var alone, beside, ratios []float64
		var answered uint64
		for range max(b.rounds/3, 1) {
			b.step(".")
			without, err := good.load(stream)
			if err != nil {
				return errors.Join(err, t.end())
			}
			attacked := make(chan error, 1)
			go func() { // ends with the load
				r, err := bad.load(attack)
				if err == nil {
					answered += r[0].Answered
					if r[0].Answered == 0 {
						err = fmt.Errorf("%s: no picture was answered: %v %v %v", name, r[0].Errors, r[0].Drops,
							r[0].Lost)
					}
				}
				attacked <- err
			}()
			time.Sleep(length / 6) // until each of the clients has sent a picture
			with, err := good.load(stream)
			if err = errors.Join(err, <-attacked); err != nil {
				return errors.Join(err, t.end())
			}
			alone, beside = append(alone, without[0].FPS), append(beside, with[0].FPS)
			ratios = append(ratios, with[0].FPS/without[0].FPS)
		}
		row := Row{Name: fmt.Sprintf("stream beside %d clients with a %s", of.clients, name), Unit: "frames/s",
			Bare: median(alone), Millrace: median(beside), Ratio: median(ratios)}
		b.add(row.atLeast(of.kept))
		b.add(Row{Name: "pictures of theirs that were answered", Unit: "a round", Millrace: float64(answered) /
			float64(len(ratios))})
	}
	return t.end()
}

// startPinned is startChild on the given core, also the core of the starting thread.
func startPinned(core int) (*child, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, err
	}
	c, err := startChild()
	return c, errors.Join(err, unix.SchedSetaffinity(0, &before))
}

// photo is a JPEG with as much detail as a camera's picture.
func photo(w, h int) []byte {
	m := image.NewYCbCr(image.Rect(0, 0, w, h), image.YCbCrSubsampleRatio420)
	seed := uint32(1)
	for i := range m.Y {
		seed = seed*1664525 + 1013904223
		m.Y[i] = uint8(i%w*255/w/2+i/w*255/h/2) + uint8(seed>>29)
	}
	for i := range m.Cb {
		m.Cb[i], m.Cr[i] = 120, 130
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, m, &jpeg.Options{Quality: 90}); err != nil {
		panic(err) // the picture is valid
	}
	return out.Bytes()
}

// scansJPEG is a gray progressive picture of the given number of scans without changes: each scan goes over all
// blocks.
func scansJPEG(side, scans int) []byte {
	segment := func(out []byte, marker byte, body ...byte) []byte {
		out = append(out, 0xff, marker)
		return append(binary.BigEndian.AppendUint16(out, uint16(2+len(body))), body...)
	}
	out := []byte{0xff, 0xd8}
	out = segment(out, 0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)
	out = segment(out, 0xc2, 8, byte(side>>8), byte(side), byte(side>>8), byte(side), 1, 1, 0x11, 0)
	code := func(class, symbol byte) []byte { // a single code, of one bit
		return append(append([]byte{class, 1}, make([]byte, 15)...), symbol)
	}
	out = segment(out, 0xc4, code(0x00, 0)...)
	out = segment(out, 0xc4, code(0x10, 0xe0)...)
	blocks := (side / 8) * (side / 8)
	out = segment(out, 0xda, 1, 1, 0, 0, 0, 0)
	out = append(out, make([]byte, blocks/8)...)
	var ends []byte // runs of 2^14 blocks that end: a bit of the code, and 14 bits of the length
	for bit, i := 0, 0; i < blocks>>14; i, bit = i+1, bit+15 {
		for len(ends) < (bit+15+7)/8 {
			ends = append(ends, 0)
		}
	}
	for i := 1; i < scans; i++ {
		coefficient, step := byte(1+(i-1)%63), byte(1-(i-1)/63)
		high := byte(0)
		if step == 0 {
			high = 1
		}
		out = segment(out, 0xda, 1, 1, 0, coefficient, coefficient, high<<4|step)
		out = append(out, ends...)
	}
	return append(out, 0xff, 0xd9)
}
