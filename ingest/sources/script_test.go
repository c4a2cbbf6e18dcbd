package sources_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/child"
	"millrace/internal/routines"
	"millrace/stream"
	"millrace/stream/buf"
)

// script is a kind of source with openings and frames controlled by a test, in a bubble of synctest.
type script struct{ s *scripted }

type scripted struct {
	// opening is called with the number of each opening, and may delay or refuse the opening; nil allows all
	// openings.
	opening func(n int) (sources.Info, error)

	mu      sync.Mutex
	rates   []float64 // asked for, of each opening
	readers []*scriptedReader
}

func (s *script) Validate(string, bool) error { return nil }

func (s *script) Open(ctx context.Context, _ string, e sources.Env) (sources.Reader, error) {
	t := s.s
	t.mu.Lock()
	n := len(t.rates)
	t.rates = append(t.rates, e.FPS)
	t.mu.Unlock()
	r := &scriptedReader{ctx: ctx, memory: e.Memory, frames: make(chan stream.Frame, 100), fail: make(chan error, 1)}
	if t.opening != nil {
		var err error
		if r.info, err = t.opening(n); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers = append(t.readers, r)
	return r, nil
}

// opened returns the requested rates.
func (s *scripted) opened() []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rates)
}

// reader returns the reader of a successful opening.
func (s *scripted) reader(n int) *scriptedReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readers[n]
}

type scriptedReader struct {
	info   sources.Info
	ctx    context.Context
	memory *buf.Pool
	frames chan stream.Frame
	fail   chan error
	closed bool

	skipped uint64 // set while Next waits
}

func (r *scriptedReader) Info() sources.Info { return r.info }
func (r *scriptedReader) Skipped() uint64    { return r.skipped }
func (r *scriptedReader) Close() error       { r.closed = true; return nil }

func (r *scriptedReader) Next() (stream.Frame, error) {
	if r.closed {
		return stream.Frame{}, errors.New("a closed source is read")
	}
	select {
	case f := <-r.frames:
		l, err := r.memory.Copy(make([]byte, 6))
		f.Codec, f.Width, f.Height, f.Payload, f.Lease = stream.NV12, 2, 2, l.Bytes(), l
		return f, err
	case err := <-r.fail:
		return stream.Frame{}, err
	case <-r.ctx.Done():
		return stream.Frame{}, context.Cause(r.ctx)
	}
}

// give gives frames with times in milliseconds, and waits until the frames are read.
func (r *scriptedReader) give(late bool, times ...int64) {
	for _, ms := range times {
		r.frames <- stream.Frame{CaptureUS: ms * 1000, Late: late}
	}
	synctest.Wait()
}

// errBroken is a failure that leads to reopening.
var errBroken = stream.Errorf(stream.Unavailable, "", "out of order")

// in returns the input of a scripted camera.
func (s *scripted) in(fps float64) sources.Input {
	return sources.Input{Address: "http://camera.test/", Settings: &script{s}, FPS: fps}
}

// The rate of a subscription that joins during an opening is observed.
func TestRateOfOneThatJoinsAnOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, begin := hub(t), make(chan struct{})
		camera := &scripted{opening: func(n int) (i sources.Info, err error) {
			if n == 0 {
				<-begin
			}
			return i, nil
		}}
		subscribe(t, h, camera.in(2), sources.Options{})
		synctest.Wait()
		subscribe(t, h, camera.in(10), sources.Options{})
		synctest.Wait()
		close(begin)
		synctest.Wait()
		if rates := camera.opened(); !slices.Equal(rates, []float64{2, 10}) {
			t.Errorf("opened with %v frames per second", rates)
		}
	})
}

// A subscription that needs more frames does not wait for the next frame of a slow source, and the other
// subscriptions also get the frames of the new connection.
func TestMoreFramesOfASlowSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, camera := hub(t), &scripted{}
		slow := subscribe(t, h, camera.in(0.1), sources.Options{})
		synctest.Wait()
		camera.reader(0).give(false, 0)
		fast := subscribe(t, h, camera.in(10), sources.Options{})
		synctest.Wait()
		if rates := camera.opened(); !slices.Equal(rates, []float64{0.1, 10}) {
			t.Fatalf("opened with %v frames per second", rates)
		}
		if !camera.reader(0).closed {
			t.Error("the first connection is still open")
		}
		camera.reader(1).give(false, 0, 100)
		for _, s := range []*subscriber{slow, fast} {
			if st := s.Status(); st.Frames != 2 || st.Restarts != 0 || st.Err != nil || st.State != sources.Running {
				t.Errorf("%+v", st)
			}
		}
	})
}

// A source with a single possible connection is closed before being reopened.
func TestMoreFramesOfOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hub(t)
		camera := &scripted{opening: func(n int) (i sources.Info, err error) {
			if n == 1 {
				err = errBroken
			}
			return i, err
		}}
		subscribe(t, h, camera.in(0.1), sources.Options{})
		synctest.Wait()
		fast := subscribe(t, h, camera.in(10), sources.Options{})
		synctest.Wait()
		if rates := camera.opened(); !slices.Equal(rates, []float64{0.1, 10, 10}) {
			t.Fatalf("opened with %v frames per second", rates)
		}
		if !camera.reader(0).closed {
			t.Error("the first connection is still open")
		}
		camera.reader(1).give(false, 0, 100)
		if st := fast.Status(); st.Frames != 2 || st.Restarts != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A late frame does not take the place of the next frame in a slot.
func TestLateFramesOfALowRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, camera := hub(t), &scripted{}
		subscribe(t, h, camera.in(20), sources.Options{})
		synctest.Wait()
		slow := subscribe(t, h, camera.in(2), sources.Options{})
		synctest.Wait()
		r := camera.reader(0)
		r.give(true, 0, 50)
		r.give(false, 100, 150, 400, 500, 550)
		r.give(true, 600, 1000)
		r.give(false, 1050, 1100)
		slow.leave()
		if want := []int64{0, 100_000, 500_000, 1_000_000, 1_050_000}; !slices.Equal(slow.pts, want) {
			t.Errorf("%v, want %v", slow.pts, want)
		}
	})
}

// A panic in a callback ends only the callback's subscription, and leaks no lease.
func TestPanicInACallback(t *testing.T) {
	for name, faulty := range map[string]sources.Options{
		"frame":  {Frame: func(stream.Frame) { panic("at once") }},
		"opened": {Frame: func(f stream.Frame) { f.Lease.Release() }, Opened: func(sources.Info) { panic("at once") }},
		"failed": {Frame: func(f stream.Frame) { f.Lease.Release() }, Failed: func(error) { panic("at once") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var panics []any
				tasks := routines.New(func(_ string, v any, _ []byte) { panics = append(panics, v) })
				memory := buf.NewPool(0)
				h := sources.NewHub(tasks, func() *buf.Pool { return memory }, nil, child.SandboxError() == nil, nil)
				camera := &scripted{}
				before := subscribe(t, h, camera.in(0), sources.Options{})
				synctest.Wait()
				broken := h.Subscribe(camera.in(0), faulty)
				over := make(chan error, 1)
				go func() { over <- broken.Run(t.Context()) }()
				synctest.Wait()
				after := subscribe(t, h, camera.in(0), sources.Options{})
				synctest.Wait()
				camera.reader(0).give(false, 0, 100)
				camera.reader(0).fail <- errBroken
				time.Sleep(time.Second)
				synctest.Wait()
				camera.reader(1).give(false, 0, 100)
				select {
				case err := <-over:
					if st := broken.Status(); err == nil || st.State != sources.Failed || st.Err == nil {
						t.Errorf("%v, %+v", err, st)
					}
				default:
					t.Error("it goes on")
				}
				for _, s := range []*subscriber{before, after} {
					s.leave()
					if !slices.Equal(s.seqs, []uint64{0, 1, 2, 3}) {
						t.Errorf("another one has got %v", s.seqs)
					}
				}
				tasks.Stop()
				tasks.Wait()
				if n := memory.Stats().Leases; n != 0 || !slices.Equal(panics, []any{"at once"}) {
					t.Errorf("%d leases left, panics %v", n, panics)
				}
			})
		})
	}
}

// A panic in a callback of the only subscription to a source with an end closes the source.
func TestPanicOfTheOnlyOne(t *testing.T) {
	for name, faulty := range map[string]sources.Options{
		"frame":  {Frame: func(stream.Frame) { panic("at once") }},
		"opened": {Frame: func(f stream.Frame) { f.Lease.Release() }, Opened: func(sources.Info) { panic("at once") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var panics []any
				tasks := routines.New(func(_ string, v any, _ []byte) { panics = append(panics, v) })
				memory := buf.NewPool(0)
				camera := &scripted{opening: func(int) (sources.Info, error) { return sources.Info{Ends: true}, nil }}
				broken := sources.NewHub(tasks, func() *buf.Pool {
					return memory
				}, nil, child.SandboxError() == nil, nil).Subscribe(camera.in(0), faulty)
				over := make(chan error, 1)
				go func() { over <- broken.Run(t.Context()) }()
				synctest.Wait()
				camera.reader(0).give(false, 0)
				if err := <-over; err == nil || !camera.reader(0).closed || memory.Stats().Leases != 0 ||
					!slices.Equal(panics, []any{"at once"}) {
					t.Errorf("%v, closed: %v, %d leases left, panics %v", err, camera.reader(0).closed,
						memory.Stats().Leases, panics)
				}
				tasks.Stop()
				tasks.Wait()
			})
		})
	}
}

// A source with an end whose only subscription ends during the opening is closed, and the next subscription opens the
// source again.
func TestTheOnlyOneLeavesWhileASourceWithAnEndIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hub(t)
		opening := make(chan struct{})
		camera := &scripted{opening: func(int) (sources.Info, error) {
			<-opening
			return sources.Info{Ends: true}, nil
		}}
		first := subscribe(t, h, camera.in(0), sources.Options{})
		synctest.Wait()
		h.RemoveForTest(first.Subscription)
		close(opening)
		synctest.Wait()
		second := subscribe(t, h, camera.in(0), sources.Options{})
		synctest.Wait()
		if n := len(camera.opened()); n != 2 || !camera.reader(0).closed {
			t.Fatalf("opened %d times", n)
		}
		camera.reader(1).give(false, 0, 100)
		camera.reader(1).fail <- io.EOF
		<-second.over
		if st := second.Status(); second.err != nil || st.Frames != 2 || st.State != sources.Ended {
			t.Errorf("%v, %+v", second.err, st)
		}
	})
}

// The numbers and counts of a subscription continue when the source turns out to have an end, so that each
// subscription reads the source on its own.
func TestSharedSourceThatHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hub(t)
		camera := &scripted{opening: func(n int) (sources.Info, error) { return sources.Info{Ends: n > 0}, nil }}
		both := []*subscriber{subscribe(t, h, camera.in(0), sources.Options{}),
			subscribe(t, h, camera.in(0), sources.Options{})}
		synctest.Wait()
		camera.reader(0).give(false, 0, 100, 200)
		camera.reader(0).fail <- errBroken
		time.Sleep(time.Second)
		synctest.Wait()
		for n := 1; n <= 2; n++ {
			camera.reader(n).give(false, 0, 100)
			camera.reader(n).fail <- io.EOF
		}
		for i, s := range both {
			<-s.over
			if st := s.Status(); !slices.Equal(s.seqs, []uint64{0, 1, 2, 3, 4}) || st.Frames != 5 ||
				st.Restarts != 1 || st.State != sources.Ended {
				t.Errorf("%d: frames %v, %+v", i, s.seqs, st)
			}
		}
	})
}

// A source with an end is read at the rate of its subscription, even when opened for another subscription that has
// ended meanwhile.
func TestTheFirstLeavesWhileASourceWithAnEndIsOpened(t *testing.T) {
	for _, c := range []struct {
		name  string
		rest  []float64
		rates []float64 // of the openings
		count []uint64  // frames of each of the rest
	}{
		{"it needs more", []float64{0}, []float64{5, 0}, []uint64{4}},
		{"it needs less", []float64{2}, []float64{5}, []uint64{1}},
		{"one needs more", []float64{0, 5}, []float64{5, 0}, []uint64{4, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := hub(t)
				opening := make(chan struct{})
				camera := &scripted{opening: func(int) (sources.Info, error) {
					<-opening
					return sources.Info{Ends: true}, nil
				}}
				first := subscribe(t, h, camera.in(5), sources.Options{})
				synctest.Wait()
				var rest []*subscriber
				for _, fps := range c.rest {
					rest = append(rest, subscribe(t, h, camera.in(fps), sources.Options{}))
				}
				synctest.Wait()
				first.leave()
				close(opening)
				synctest.Wait()
				if got := camera.opened(); !slices.Equal(got, c.rates) {
					t.Fatalf("opened at %v, want %v", got, c.rates)
				}
				for n := range len(c.rates) {
					r := camera.reader(n)
					if r.closed {
						continue
					}
					r.give(false, 0, 100, 200, 300)
					r.fail <- io.EOF
				}
				for i, s := range rest {
					<-s.over
					if st := s.Status(); s.err != nil || st.Frames != c.count[i] || st.State != sources.Ended {
						t.Errorf("%v fps: %v, %+v", c.rest[i], s.err, st)
					}
				}
			})
		})
	}
}

// The default transport and the same transport set explicitly give the same source.
func TestSharedTransport(t *testing.T) {
	key := func(address, transport string) string {
		return sources.Input{Address: address, Settings: &sources.Video{Transport: transport}}.KeyForTest()
	}
	const camera = "rtsp://camera.test/"
	if key(camera, "") != key(camera, "tcp") || key(camera, "") == key(camera, "udp") || key(camera, "") == "" {
		t.Errorf("%s, %s, %s", key(camera, ""), key(camera, "tcp"), key(camera, "udp"))
	}
}

// Each subscription of a shared source counts the pictures skipped since it joined, over all openings.
func TestSkippedPictures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, camera := hub(t), &scripted{}
		skip := func(opening int, n uint64) {
			synctest.Wait()
			camera.reader(opening).skipped = n
			camera.reader(opening).give(false, 0)
		}
		first := subscribe(t, h, camera.in(2), sources.Options{})
		skip(0, 5)
		second := subscribe(t, h, camera.in(2), sources.Options{})
		skip(0, 8)
		camera.reader(0).skipped = 9 // counted with the end
		camera.reader(0).fail <- errBroken
		time.Sleep(time.Minute)
		skip(1, 2)
		if a, b := first.Status().Skipped, second.Status().Skipped; a != 11 || b != 6 {
			t.Errorf("%d and %d pictures, want 11 and 6", a, b)
		}
		first.leave()
		second.leave()
		if n := first.Status().Skipped; n != 11 {
			t.Errorf("%d pictures after the end", n)
		}
	})
}
