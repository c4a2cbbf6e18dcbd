package sources_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/child"
	"millrace/internal/processors"
	"millrace/internal/routines"
	"millrace/internal/video"
	"millrace/internal/video/videotest"
	"millrace/stream"
	"millrace/stream/buf"
)

// hub returns a Hub. At the end of the test the hub's memory and goroutines are checked.
func hub(t *testing.T) *sources.Hub {
	t.Helper()
	tasks := routines.New(func(_ string, v any, stack []byte) { t.Errorf("%v\n%s", v, stack) })
	memory := buf.NewPool(0)
	t.Cleanup(func() {
		tasks.Stop()
		tasks.Wait()
		if n := memory.Stats().Leases; n != 0 {
			t.Errorf("%d leases left", n)
		}
		if n := child.LiveChildren(); n != 0 {
			t.Errorf("%d children left", n)
		}
	})
	return sources.NewHub(tasks, func() *buf.Pool { return memory }, nil, child.SandboxError() == nil, nil)
}

// subscriber is a running subscription.
type subscriber struct {
	*rig
	*sources.Subscription
	infos []sources.Info
}

func (s *subscriber) Status() sources.Status { return s.Subscription.Status() }

// subscribe runs a subscription until the end of the test.
func subscribe(t *testing.T, h *sources.Hub, in sources.Input, o sources.Options) *subscriber {
	t.Helper()
	if in.Settings == nil {
		in.Settings = new(sources.Video)
	}
	s := &subscriber{rig: &rig{t: t, over: make(chan struct{}), sizes: map[string]int{}}}
	if o.Frame == nil {
		o.Frame = s.frame
	}
	o.Opened = func(i sources.Info) { s.mu.Lock(); defer s.mu.Unlock(); s.infos = append(s.infos, i) }
	s.Subscription = h.Subscribe(in, o)
	var ctx context.Context
	ctx, s.cancel = context.WithCancelCause(context.Background())
	go func() {
		defer close(s.over)
		s.err = s.Subscription.Run(ctx)
	}()
	t.Cleanup(s.leave)
	return s
}

// leave ends the subscription.
func (s *subscriber) leave() {
	s.cancel(errStop)
	<-s.over
	s.free()
}

// until waits for a status.
func (s *subscriber) until(what string, ok func(sources.Status) bool) sources.Status {
	s.t.Helper()
	for limit := time.Now().Add(patience); ; <-time.After(2 * time.Millisecond) {
		st := s.Status()
		if ok(st) {
			return st
		}
		if time.Now().After(limit) {
			s.t.Fatalf("not seen: %s: %+v", what, st)
		}
	}
}

// frames waits for n frames more.
func (s *subscriber) frames(n uint64) sources.Status {
	s.t.Helper()
	from := s.Status().Frames
	return s.until(fmt.Sprintf("%d frames more", n), func(st sources.Status) bool { return st.Frames >= from+n })
}

// Subscriptions to one camera share a connection, each with its own counts; the end of the last subscription closes
// the connection.
func TestShared(t *testing.T) {
	c := newCamera(t)
	h := hub(t)
	first := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
	first.frames(5)
	before := c.opened.Load()
	second := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
	second.frames(5)
	var others []*subscriber
	for range 5 {
		others = append(others, subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{}))
	}
	for _, s := range others {
		s.frames(2)
		s.leave()
	}
	first.leave()
	n := second.frames(5)
	if now := c.opened.Load(); now != before {
		t.Errorf("the camera was opened %d times, and %d times by seven readers", before, now)
	}
	if st := first.Status(); st.State != sources.Ended || st.Frames < 10 || st.Restarts != 0 || st.Info.Width != 64 {
		t.Errorf("%+v", st)
	}
	second.leave()
	if n.Frames < 10 || len(second.infos) != 1 {
		t.Errorf("%+v, opened %v", n, second.infos)
	}
	for i, seq := range second.seqs {
		if seq != uint64(i) {
			t.Fatalf("%v", second.seqs)
		}
	}
	if n := child.LiveChildren(); n != 0 {
		t.Errorf("%d children after the last one has left", n)
	}
	again := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
	again.frames(1)
}

// Sources with different addresses, settings or access rights are not shared.
func TestNotShared(t *testing.T) {
	c := newCamera(t)
	h := hub(t)
	one := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
	one.frames(2)
	public := subscribe(t, h, sources.Input{Address: c.URL, PublicOnly: true}, sources.Options{})
	<-public.over
	width := subscribe(t, h, sources.Input{Address: c.URL, Settings: &sources.Video{Width: 32}}, sources.Options{})
	width.frames(2)
	width.leave()
	one.leave()
	if len(width.sizes) != 1 || width.sizes["32x32"] == 0 || one.sizes["32x32"] != 0 {
		t.Errorf("%v, %v", one.sizes, width.sizes)
	}
	if st := public.Status(); st.State != sources.Failed || st.Kind != video.Forbidden || st.Frames != 0 {
		t.Errorf("one that may not use private addresses: %+v", st)
	}
}

// A failure is reported to all subscriptions, including subscriptions made during the failure, and the source is
// reopened for all.
func TestSharedFailure(t *testing.T) {
	c := newCamera(t)
	h := hub(t)
	var mu sync.Mutex
	told := map[string]int{}
	join := func(name string) *subscriber {
		return subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{Failed: func(error) {
			mu.Lock()
			defer mu.Unlock()
			told[name]++
		}})
	}
	a, b := join("a"), join("b")
	a.frames(2)
	b.frames(2)
	c.dead.Store(true)
	(*c.cut.Load())()
	waits := func(s *subscriber) {
		st := s.until("waiting", func(st sources.Status) bool {
			return st.State == sources.Waiting && st.Err != nil && !st.Retry.IsZero()
		})
		if st.Kind == "" {
			t.Errorf("%+v", st)
		}
	}
	waits(a)
	waits(b)
	late := join("late")
	waits(late)
	c.dead.Store(false)
	for name, s := range map[string]*subscriber{"a": a, "b": b, "late": late} {
		st := s.frames(2)
		mu.Lock()
		if told[name] == 0 || st.Restarts == 0 || st.State != sources.Running {
			t.Errorf("%s was told %d times: %+v", name, told[name], st)
		}
		mu.Unlock()
	}
	fresh := join("fresh")
	if st := fresh.frames(1); st.Restarts != 0 || st.Err != nil || told["fresh"] != 0 {
		t.Errorf("%+v: one that came later", st)
	}
}

// Each subscription reads a source with an end from the beginning.
func TestFilesAreNotShared(t *testing.T) {
	path := ffmpeg(t, "clip.mp4", append(moving("2"), "-movflags", "+faststart")...)
	srv := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
	defer srv.Close()
	h := hub(t)
	var all []*subscriber
	for _, address := range []string{path, srv.URL + "/clip.mp4"} {
		for range 3 {
			all = append(all, subscribe(t, h, sources.Input{Address: address}, sources.Options{}))
		}
	}
	for i, s := range all {
		<-s.over
		if st := s.Status(); s.err != nil || st.Frames != 20 || st.State != sources.Ended || s.pts[0] != 0 {
			t.Errorf("%d: %v, %+v, %v", i, s.err, st, s.pts)
		}
	}
}

// envSettings are the settings of a video. Open passes the Env of each opening to opened.
type envSettings struct {
	sources.Video
	opened chan sources.Env
}

func (s *envSettings) Open(ctx context.Context, address string, e sources.Env) (sources.Reader, error) {
	s.opened <- e
	return s.Video.Open(ctx, address, e)
}

// A file read at full speed is decoded by several threads while fewer sources than processors are read; a paced file
// is decoded by one thread.
func TestThreads(t *testing.T) {
	path := ffmpeg(t, "clip.mp4", moving("2")...)
	h := hub(t)
	open := func(o sources.Options) (*subscriber, sources.Env) {
		set := &envSettings{opened: make(chan sources.Env, 100)}
		s := subscribe(t, h, sources.Input{Address: path, Settings: set, Loop: true}, o)
		return s, <-set.opened
	}
	count := processors.Count()
	var last *subscriber
	var env sources.Env
	for n := 1; n <= count; n++ {
		last, env = open(sources.Options{})
		if got, want := env.OneThread(), n == count; got != want {
			t.Fatalf("%d sources, %d processors: one thread is %v", n, count, got)
		}
	}
	last.leave()
	if count > 1 && env.OneThread() {
		t.Error("one thread, after a source was closed")
	}
	if _, env = open(sources.Options{Paced: func() bool { return true }}); !env.OneThread() {
		t.Error("a paced file is decoded by several threads")
	}
}

// Subscriptions to one camera count as one source, or as none while the camera cannot be read.
func TestThreadsBesideACamera(t *testing.T) {
	path := ffmpeg(t, "clip.mp4", moving("2")...)
	count := processors.Count()
	if count < 2 {
		t.Skip("with one processor, each source has one thread")
	}
	c := newCamera(t)
	h := hub(t)
	first := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
	first.frames(1)
	for range 5 {
		subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{}).frames(1)
	}
	for n := range count - 1 { // files beside the camera, and one more
		want := n == count-2
		set := &envSettings{opened: make(chan sources.Env, 100)}
		subscribe(t, h, sources.Input{Address: path, Settings: set, Loop: true}, sources.Options{})
		env := <-set.opened
		if got := env.OneThread(); got != want {
			t.Errorf("%d files, a camera and %d processors: one thread is %v", n+1, count, got)
		}
		if !want {
			continue
		}
		c.dead.Store(true)
		(*c.cut.Load())()
		first.until("one thread less", func(sources.Status) bool { return !env.OneThread() })
	}
}

// Each subscription gets frames at its own rate: the source is read at the highest rate, and is reopened without a
// pause when a subscription needs more.
func TestSharedRates(t *testing.T) {
	c := newCamera(t)
	h := hub(t)
	slow := subscribe(t, h, sources.Input{Address: c.URL, FPS: 2}, sources.Options{})
	slow.frames(2)
	faster := subscribe(t, h, sources.Input{Address: c.URL, FPS: 5}, sources.Options{})
	all := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
	all.frames(100)
	slow.leave()
	faster.leave()
	all.leave()
	rate := func(s *subscriber) float64 { // of the frames after the last opening
		from := 0
		for i := 1; i < len(s.pts); i++ {
			if s.pts[i] < s.pts[i-1] {
				from = i
			}
		}
		pts := s.pts[from:]
		return float64(len(pts)-1) / (float64(pts[len(pts)-1]-pts[0]) / 1e6)
	}
	if r := rate(slow); r > 3 {
		t.Errorf("2 fps: %.1f, %v", r, slow.pts)
	}
	if r := rate(faster); r > 6.5 {
		t.Errorf("5 fps: %.1f, %v", r, faster.pts)
	}
	if r := rate(all); r < 10 {
		t.Errorf("all: %.1f, %v", r, all.pts)
	}
	if st := slow.Status(); st.Restarts != 0 || st.Err != nil || st.Frames != uint64(len(slow.seqs)) {
		t.Errorf("%+v", st)
	}
}

// Subscriptions begin and end while others run: the others lose no frame, and nothing is left.
func TestComeAndGo(t *testing.T) {
	c := newCamera(t)
	h := hub(t)
	stays := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
	stays.frames(1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				s := h.Subscribe(sources.Input{Address: c.URL, Settings: new(sources.Video)},
					sources.Options{Frame: func(f stream.Frame) {
						f.Lease.Release()
					}})
				ctx, cancel := context.WithCancel(context.Background())
				over := make(chan error)
				go func() { over <- s.Run(ctx) }()
				for s.Status().Frames < 2 {
					<-time.After(time.Millisecond)
				}
				cancel()
				<-over
			}
		})
	}
	all.Wait()
	stays.leave()
	for i := 1; i < len(stays.pts); i++ {
		if stays.pts[i] <= stays.pts[i-1] || stays.seqs[i] != uint64(i) {
			t.Fatalf("frame %d: %v, %v", i, stays.seqs, stays.pts)
		}
	}
	if len(stays.infos) != 1 {
		t.Errorf("opened %d times", len(stays.infos))
	}
}

// A camera without subscriptions is closed before the next subscription opens the camera.
func TestClosedBeforeItIsOpened(t *testing.T) {
	c := newCamera(t)
	h := hub(t)
	for range 5 {
		a := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
		a.frames(1)
		a.cancel(errStop)
		b := subscribe(t, h, sources.Input{Address: c.URL}, sources.Options{})
		b.frames(1)
		b.leave()
		<-a.over
	}
}

// Two subscriptions use one connection, as counted by the camera.
func TestSharedRTSP(t *testing.T) {
	if testing.Short() {
		t.Skip("an RTSP camera takes seconds to begin")
	}
	addr, _ := videotest.RTSP(t)
	counted, connections := counting(t, addr)
	h := hub(t)
	a := subscribe(t, h, sources.Input{Address: "rtsp://" + counted}, sources.Options{})
	a.frames(3)
	before := connections()
	b := subscribe(t, h, sources.Input{Address: "rtsp://" + counted}, sources.Options{})
	b.frames(5)
	a.frames(5)
	if now := connections(); now != before || before == 0 {
		t.Errorf("%d connections, then %d", before, now)
	}
}

// counting forwards connections to a camera and counts all connections made.
func counting(t *testing.T, addr string) (own string, connections func() int) {
	t.Helper()
	host, path := filepath.Dir(addr), filepath.Base(addr)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var n int
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
			out, err := net.Dial("tcp", host)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				running.Go(func() {
					_, _ = pair[0].(*net.TCPConn).WriteTo(pair[1])
					_ = pair[0].Close()
					_ = pair[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String() + "/" + path, func() int { mu.Lock(); defer mu.Unlock(); return n }
}
