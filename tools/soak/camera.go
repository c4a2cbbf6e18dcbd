package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"
)

// camera is an HTTP camera of motion JPEG with faults chosen by the run.
type camera struct {
	*httptest.Server
	silent  atomic.Bool // keeps connections and sends nothing
	dead    atomic.Bool // answers 503
	damaged atomic.Bool // some bytes of the pictures are wrong
	cuts    atomic.Pointer[cutting]
}

// cutting ends all present connections.
type cutting struct {
	ctx context.Context
	cut context.CancelFunc
}

func newCamera() *camera {
	c := &camera{}
	c.cut()
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	return c
}

func (c *camera) address() string { return c.URL + "/camera.mjpg" }

// cut ends the present connections.
func (c *camera) cut() {
	ctx, cut := context.WithCancel(context.Background())
	if old := c.cuts.Swap(&cutting{ctx, cut}); old != nil {
		old.cut()
	}
}

// heal ends every failure.
func (c *camera) heal() {
	c.dead.Store(false)
	c.silent.Store(false)
	c.damaged.Store(false)
}

func (c *camera) close() {
	c.cuts.Load().cut()
	c.CloseClientConnections()
	c.Close()
}

const pictureSide = 64

// pictures is a short scene: a moving bright square.
var pictures = func() (all [16][]byte) {
	for i := range all {
		img := image.NewRGBA(image.Rect(0, 0, pictureSide, pictureSide))
		for x := range 12 {
			for y := range 12 {
				img.Set(3*i+x, 20+y, color.White)
			}
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, nil); err != nil {
			panic(err)
		}
		all[i] = b.Bytes()
	}
	return all
}()

// spoil returns a copy of a picture with wrong bytes.
func spoil(picture []byte, rng *rand.Rand) []byte {
	bad := bytes.Clone(picture)
	for range 8 {
		bad[20+rng.IntN(len(bad)-20)] = byte(rng.IntN(256))
	}
	return bad
}

const cameraInterval = 100 * time.Millisecond

func (c *camera) serve(w http.ResponseWriter, q *http.Request) {
	if c.dead.Load() {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	cut := c.cuts.Load().ctx.Done()
	rng := rand.New(rand.NewPCG(1, 1)) // used by a single connection at a time
	w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=b")
	tick := time.NewTicker(cameraInterval)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-cut:
			panic(http.ErrAbortHandler) // the connection ends in the middle of the answer
		case <-q.Context().Done():
			return
		case <-tick.C:
		}
		if c.silent.Load() {
			continue
		}
		p := pictures[i%len(pictures)]
		if c.damaged.Load() {
			p = spoil(p, rng)
		}
		if _, err := fmt.Fprintf(w, "--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(p),
			p); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}
