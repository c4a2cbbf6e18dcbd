package frames_test

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
	"testing"
	"time"
)

// flapping is an HTTP MJPEG camera that fails on demand.
type flapping struct {
	URL    string
	wide   atomic.Bool // the pictures are larger
	silent atomic.Bool // keeps its connections and sends nothing
	dead   atomic.Bool // answers 503
	cuts   atomic.Pointer[cutting]
}

// cutting breaks all present connections.
type cutting struct {
	ctx context.Context
	cut context.CancelFunc
}

func newFlapping(t *testing.T) *flapping {
	f := &flapping{}
	f.renew()
	srv := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() {
		f.cuts.Load().cut()
		srv.CloseClientConnections()
		srv.Close()
	})
	f.URL = srv.URL + "/cam.mjpg"
	return f
}

func (f *flapping) renew() {
	ctx, cut := context.WithCancel(context.Background())
	if old := f.cuts.Swap(&cutting{ctx, cut}); old != nil {
		old.cut()
	}
}

// trouble causes a random camera failure.
func (f *flapping) trouble(rng *rand.Rand) {
	switch rng.IntN(7) {
	case 0:
		f.silent.Store(!f.silent.Load())
	case 1:
		f.dead.Store(true)
		f.renew()
	case 2:
		f.renew()
	case 3:
		f.wide.Store(!f.wide.Load())
	default:
		f.heal()
	}
}

func (f *flapping) heal() {
	f.dead.Store(false)
	f.silent.Store(false)
}

var flapPictures = [2][]byte{flapPicture(64), flapPicture(96)}

func flapPicture(side int) []byte {
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	for i := range side {
		img.Set(i, i, color.White)
	}
	var b bytes.Buffer
	_ = jpeg.Encode(&b, img, nil)
	return b.Bytes()
}

func (f *flapping) serve(w http.ResponseWriter, q *http.Request) {
	if f.dead.Load() {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	cut := f.cuts.Load().ctx.Done()
	w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=b")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-cut:
			return
		case <-q.Context().Done():
			return
		case <-tick.C:
		}
		if f.silent.Load() {
			continue
		}
		p := flapPictures[0]
		if f.wide.Load() {
			p = flapPictures[1]
		}
		if _, err := fmt.Fprintf(w, "--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(p),
			p); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}
