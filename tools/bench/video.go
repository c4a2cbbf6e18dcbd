package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"millrace/client/load"
	"millrace/internal/codec"
	"millrace/workers/motion"
)

const (
	videoW, videoH  = 640, 480
	smallW, smallH  = 160, 120
	videoFrames     = 16
	videoStreams    = 8
	videoRate       = 30 // frames/s of each
	videoQuality    = 85
	videoNoise      = 12
	squares, square = 4, 64
)

// video compares the motion model with decoding and detection alone.
func video(b *bench) error {
	f, err := renderClip(videoW, videoH)
	if err != nil {
		return err
	}
	defer f.remove()
	return b.perPicture("", b.server, "motion", f, detectMotion)
}

// perPicture compares the server's processor time for a frame of JPEG video with the bare work on the same frames at
// the same rate, because a processor waking up for each frame takes longer.
func (b *bench) perPicture(with string, t *target, model string, f *clip, bare task) error {
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	name := fmt.Sprintf("JPEG video %dx%d (%d KB)%s, CPU a frame, ", videoW, videoH, f.mean>>10, with)
	long := *b // with rounds long enough to neglect the time of opening streams
	long.round, long.rounds = 3*b.round, max(b.rounds/3, 1)
	live := load.Config{Rate: videoRate, Options: map[string]string{"policy": "latest"}}
	full := load.Config{Window: 2, Options: map[string]string{"policy": "every"}}
	for _, way := range []struct {
		name string
		cfg  load.Config
	}{{fmt.Sprintf("%d streams at %d fps", videoStreams, videoRate), live},
		{fmt.Sprintf("%d streams, as fast as can be", videoStreams), full}} {
		ours := func(d time.Duration) (float64, error) {
			cfg := way.cfg
			cfg.URL, cfg.Model, cfg.Streams, cfg.Dir, cfg.Duration = "http://"+t.addr, model, videoStreams, f.dir, d
			before := cpu()
			all, err := c.load(cfg)
			used := cpu() - before
			if err != nil {
				return 0, err
			}
			r := all[0]
			if r.Failed > 0 || r.Answered == 0 {
				return 0, fmt.Errorf("%d frames were answered, %d failed: %v", r.Answered, r.Failed, r.Errors)
			}
			return used.Seconds() * 1000 / float64(r.Answered), nil
		}
		bareCPU := func(d time.Duration) (float64, error) {
			return bareCPU(f.frames, way.cfg.Rate*videoStreams, d, bare)
		}
		row, err := long.pair(name+way.name, "ms", bareCPU, ours)
		if err != nil {
			return err
		}
		b.add(row.atMost(1.20))
	}
	return nil
}

// task returns a goroutine's work on each frame, and a function that ends the task.
type task func() (do func(frame []byte) error, end func(), err error)

// bareCPU returns the processor time in ms of a task for a frame: on all processors as fast as possible, or on one
// processor at a fixed rate.
func bareCPU(frames [][]byte, rate float64, d time.Duration, bare task) (float64, error) {
	n := runtime.GOMAXPROCS(0)
	if rate > 0 {
		n = 1
	}
	var wg sync.WaitGroup
	var done atomic.Int64
	errs := make(chan error, n)
	before := cpu()
	for range n {
		wg.Go(func() {
			n, err := repeat(frames, rate, d, bare)
			done.Add(int64(n))
			errs <- err
		})
	}
	wg.Wait()
	used := cpu() - before
	for range n {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return used.Seconds() * 1000 / float64(done.Load()), nil
}

// repeat runs a task for a time, and returns the number of frames.
func repeat(frames [][]byte, rate float64, d time.Duration, bare task) (n int, err error) {
	do, end, err := bare()
	if err != nil {
		return 0, err
	}
	defer end()
	began := time.Now()
	for n == 0 || time.Since(began) < d {
		if rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
		}
		if err := do(frames[n%len(frames)]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// detectMotion is the task of decoding a frame and detecting motion.
func detectMotion() (do func([]byte) error, end func(), err error) {
	detector, err := motion.NewDetector(motion.Settings{})
	if err != nil {
		return nil, nil, err
	}
	set := detector.Settings()
	t := codec.Target{Width: set.Width, Height: set.Height, Color: codec.Gray, Layout: codec.NHWC, Type: codec.UINT8,
		Fit: codec.Stretch}
	dec := codec.NewDecoder(codec.Limits{})
	gray := make([]byte, set.Width*set.Height)
	return func(frame []byte) error {
		if _, err := dec.Decode(frame, t, gray); err != nil {
			return err
		}
		detector.Detect(gray)
		return nil
	}, dec.Close, nil
}

// clip is a rendered video, in memory and in a folder.
type clip struct {
	frames [][]byte
	mean   int // bytes of a frame
	dir    string
}

// renderClip renders the scene. The aspect ratio must be 4:3.
func renderClip(w, h int) (*clip, error) {
	frames, err := scene(w, h)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "millrace-bench")
	if err != nil {
		return nil, err
	}
	f := &clip{frames: frames, dir: dir}
	size := 0
	for i, data := range frames {
		size += len(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.jpg", i)), data, 0o600); err != nil {
			f.remove()
			return nil, err
		}
	}
	f.mean = size / len(frames)
	return f, nil
}

func (f *clip) remove() { os.RemoveAll(f.dir) }

// scene is a noisy, textured wall with squares moving along the wall.
func scene(w, h int) ([][]byte, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	list := make([][]byte, videoFrames)
	rgb := make([]byte, w*h*3)
	pixels := func(n int) int { return n * w / videoW }
	side := pixels(square)
	for k := range list {
		for y := range h {
			for x := range w {
				v := 90 + (x*7/16+y*5/16)%60 + rng.IntN(videoNoise)
				p := rgb[3*(y*w+x):]
				p[0], p[1], p[2] = byte(v), byte(v-10), byte(v+10)
			}
		}
		for q := range squares {
			left, top := pixels(80+140*q+6*k)%(w-side), pixels(40+q*100)
			for y := top; y < top+side; y++ {
				for x := left; x < left+side; x++ {
					p := rgb[3*(y*w+x):]
					p[0], p[1], p[2] = byte(220+rng.IntN(4)), 200, 40
				}
			}
		}
		var err error
		if list[k], err = codec.EncodeJPEG(nil, rgb, w, h, videoQuality); err != nil {
			return nil, err
		}
	}
	return list, nil
}
