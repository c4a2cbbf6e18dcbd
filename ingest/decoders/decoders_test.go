package decoders_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/ingest"
	"millrace/ingest/decoders"
	"millrace/internal/child"
	"millrace/internal/processors"
	"millrace/internal/testneeds"
	"millrace/internal/video"
	"millrace/internal/video/videotest"
	"millrace/stream"
	"millrace/stream/buf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience limits every wait in these tests. No wait should come close.
const patience = 30 * time.Second

// rig is a decoder with a stream that answers frames at once.
type rig struct {
	*decoders.Decoder
	t    *testing.T
	pool *decoders.Pool
	st   *stream.Stream
	mem  *buf.Pool
	now  stream.Instant
	of   *stream.Account
	runs sync.WaitGroup // frames being answered; memory is released after the ending

	asking chan struct{} // if set, requests for key frames return after the closing of asking

	mu     sync.Mutex
	log    []string // "seq how", in the order of the endings
	breaks []uint64 // frames with a discontinuity
	sizes  []string // sizes of the frames and of the unscaled pictures, in the order of seq
	asked  int      // for key frames
	told   []slog.Record
	why    map[uint64]string // the texts of errors
	news   chan struct{}     // one slot: a field above changed
}

func newRig(t *testing.T, codec stream.Codec, mode stream.Mode, edit ...func(*decoders.Options)) *rig {
	t.Helper()
	r := &rig{t: t, mem: buf.NewPool(0), now: stream.Now(), news: make(chan struct{}, 1)}
	o := decoders.Options{Limits: ingest.Limits{MaxDecoders: 1}, Sandbox: child.SandboxError() == nil,
		Log: slog.New(recorder{r})}
	for _, e := range edit {
		e(&o)
	}
	return r.open(codec, mode, o, &stream.Model{Name: "any", AcceptsAnyInput: true, Ragged: true, MaxBatch: 4})
}

// newPictureRig is newRig for a model that takes pictures of w by h.
func newPictureRig(t *testing.T, codec stream.Codec, w, h int, fit string) *rig {
	t.Helper()
	r := &rig{t: t, mem: buf.NewPool(0), now: stream.Now(), news: make(chan struct{}, 1)}
	return r.open(codec, stream.Every, decoders.Options{Limits: ingest.Limits{MaxDecoders: 1},
		Sandbox: child.SandboxError() == nil, Log: slog.New(recorder{r})}, &stream.Model{
		Name: "eyes", MaxBatch: 4, Image: &stream.ImageSpec{Width: w, Height: h, Color: "RGB", Layout: "NHWC",
			Fit: fit},
		Inputs: []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{h, w, 3}}},
	})
}

func (r *rig) open(codec stream.Codec, mode stream.Mode, o decoders.Options, model *stream.Model) *rig {
	t := r.t
	t.Helper()
	r.pool = decoders.NewPool(o)
	r.st = stream.New(model, r, r, stream.Options{Policy: stream.Policy{Mode: mode, Window: 512}})
	var err error
	r.Decoder, err = r.pool.Open(codec, r.st, r.mem, decoders.Client{
		Account: r.of,
		KeyFrame: func() {
			r.note(func() { r.asked++ })
			if r.asking != nil {
				<-r.asking
			}
		},
		Refused: func(f *stream.Frame, err error) { r.end(f.Seq, "refused") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range r.Close() {
			r.end(f.Seq, "left")
		}
		r.pool.Close()
		r.st.Close(stream.ByClient)
		r.runs.Wait()
		if s := r.mem.Stats(); s.Leases != 0 || s.Leased != 0 {
			t.Errorf("%d leases of %d bytes left", s.Leases, s.Leased)
		}
		if r.pool.Running() != 0 || child.LiveChildren() != 0 {
			t.Errorf("%d videos and %d children left", r.pool.Running(), child.LiveChildren())
		}
	})
	return r
}

// feed feeds the decoder a chunk, changed by edit.
func (r *rig) feed(seq int, data []byte, edit ...func(*stream.Frame)) {
	r.t.Helper()
	l, err := r.mem.Copy(data)
	if err != nil {
		r.t.Fatal(err)
	}
	f := stream.Frame{Seq: uint64(seq), Payload: l.Bytes(), Lease: l}
	for _, e := range edit {
		e(&f)
	}
	r.Feed(f, r.now)
}

func (r *rig) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *rig) end(seq uint64, how string) {
	r.note(func() { r.log = append(r.log, fmt.Sprint(seq, " ", how)) })
}

// until waits for a condition; ok is called with the lock held.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	over := time.After(patience)
	for {
		r.mu.Lock()
		done := ok()
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-r.news:
		case <-over:
			r.t.Fatalf("never: %s; endings %q, asked %d times", what, r.endings(), r.asked)
		}
	}
}

func (r *rig) endings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

// ended waits for n endings.
func (r *rig) ended(n int) {
	r.t.Helper()
	r.until(fmt.Sprint(n, " endings"), func() bool { return len(r.log) >= n })
}

// The rig is the stream's queue: a goroutine takes each frame at once.
func (r *rig) Enqueue(s *stream.Stream, _ any) {
	r.runs.Go(func() {
		if q, _ := s.Take(stream.Now(), 4, nil, 0); q != nil {
			if q.Discontinuity {
				r.note(func() { r.breaks = append(r.breaks, q.Seq) })
			}
			r.note(func() {
				r.sizes = append(r.sizes, fmt.Sprintf("%d: %dx%d of %dx%d", q.Seq, q.Width, q.Height, q.SourceWidth,
					q.SourceHeight))
			})
			q.Finish(nil, nil, false)
			q.Unbind()
		}
	})
}
func (r *rig) Admit(bool) error      { return nil }
func (r *rig) AddWaiting(int)        {}
func (r *rig) Ended(*stream.Request) {}
func (r *rig) Detach(*stream.Stream) {}

// rig is also the stream's sink.
func (r *rig) Push(q *stream.Result) {
	how := q.Outcome.String()
	switch q.Outcome {
	case stream.Dropped:
		how = string(q.Reason)
	case stream.Failed:
		how = string(stream.CodeOf(q.Err))
		r.note(func() {
			if r.why == nil {
				r.why = map[uint64]string{}
			}
			r.why[q.Seq] = q.Err.Error()
		})
	}
	q.Release()
	r.end(q.Seq, how)
}
func (r *rig) Done(stream.CloseReason) {}

// recorder keeps the logged records from level Info on.
type recorder struct{ r *rig }

func (h recorder) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (h recorder) Handle(_ context.Context, rec slog.Record) error {
	h.r.note(func() { h.r.told = append(h.r.told, rec) })
	return nil
}
func (h recorder) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h recorder) WithGroup(string) slog.Handler      { return h }

// stuck installs an ffmpeg that reads and writes nothing.
func stuck(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	testneeds.WriteProgram(t, filepath.Join(dir, "ffmpeg"), "#!/bin/sh\nexec sleep 1000\n")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// silent is a chunk of H.264 without a picture: a delimiter and an empty message.
var silent = []byte{0, 0, 0, 1, 9, 0x30, 0, 0, 0, 1, 6, 5, 1, 0xAA, 0x80}

// Chunks waiting at the end of the video stay, whatever is fed afterwards, and end once.
func TestChunkAfterTheEnd(t *testing.T) {
	list := videotest.Chunks(t, "vp8", 64, 48, 2)
	stuck(t)
	r := newRig(t, stream.VP8, stream.Latest)
	r.feed(0, list[0])
	big := append(slices.Clone(list[1]), make([]byte, 100<<10)...) // more than a pipe holds
	for i := 1; i < 10; i++ {
		r.feed(i, big)
	}
	r.End()
	r.now = r.now.Add(5 * time.Second)
	r.feed(10, list[1])
	r.ended(1)
	if got := r.endings(); !slices.Equal(got, []string{"10 closed"}) {
		t.Fatalf("%q", got)
	}
	for _, f := range r.Close() {
		r.end(f.Seq, "left")
	}
	want := []string{"10 closed"}
	for i := range 10 {
		want = append(want, fmt.Sprint(i, " left"))
	}
	if got := r.endings(); !slices.Equal(got, want) {
		t.Errorf("endings %q\nwant    %q", got, want)
	}
}

// The number of chunks unanswered by ffmpeg is limited, also in `latest`, where no credit limits chunks.
func TestWaitingIsBounded(t *testing.T) {
	list := videotest.Chunks(t, "vp8", 64, 48, 2)
	stuck(t)
	r := newRig(t, stream.VP8, stream.Latest)
	const n = 5000
	for i := range n {
		r.feed(i, list[i%2]) // each second chunk is a key frame
	}
	if left := n - len(r.endings()); left > 330 {
		t.Errorf("%d of %d chunks wait", left, n)
	}
}

// After chunks without pictures the decoder requests a key frame, and the video continues with the key frame.
func TestPicturesThatDoNotCome(t *testing.T) {
	list := videotest.Chunks(t, "h264", 64, 48, 2)
	r := newRig(t, stream.H264, stream.Latest)
	r.feed(0, list[0])
	r.ended(1)
	r.mu.Lock()
	r.asked = 0
	r.mu.Unlock()
	seq := 1
	for ; seq < 200 && len(r.endings()) == 1; seq++ {
		r.now = r.now.Add(33 * time.Millisecond)
		r.feed(seq, silent)
	}
	r.until("a key frame is asked for", func() bool { return r.asked > 0 })
	r.feed(seq, list[0])
	r.ended(seq + 1)
	got := r.endings()
	for i, e := range got[1:seq] {
		if !strings.HasSuffix(e, " undecoded") {
			t.Fatalf("%d: %q", i+1, e)
		}
	}
	if got[seq] != fmt.Sprint(seq, " result") {
		t.Errorf("%q", got[seq])
	}
}

// A picture larger than allowed and larger than its chunk's header says is refused as too large.
func TestLargerThanItsHeader(t *testing.T) {
	small, large := videotest.Chunks(t, "h264", 64, 48, 1)[0], videotest.Chunks(t, "h264", 128, 96, 1)[0]
	unit := bytes.Index(small, []byte{0, 0, 0, 1, 0x67}) // the sequence parameter set
	end := unit + 4 + bytes.Index(small[unit+4:], []byte{0, 0, 0, 1})
	r := newRig(t, stream.H264, stream.Every, func(o *decoders.Options) { o.MaxPixels = 64 * 48 })
	r.feed(0, append(large, small[unit:end]...))
	r.End()
	r.ended(1)
	if got := r.endings()[0]; got != "0 too_large" {
		t.Errorf("%q", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) > 0 {
		t.Errorf("logged %v", r.told)
	}
}

// A waiting key frame is kept when earlier chunks are too late.
func TestLateUpToAKeyFrame(t *testing.T) {
	list := videotest.Chunks(t, "vp8", 64, 48, 2)
	stuck(t)
	r := newRig(t, stream.VP8, stream.Latest)
	r.feed(0, append(slices.Clone(list[0]), make([]byte, 100<<10)...)) // more than a pipe holds
	for end := time.Now().Add(patience); child.LiveChildren() == 0 && time.Now().Before(end); {
		runtime.Gosched() // until the chunk is taken
	}
	for i := 1; i < 10; i++ {
		r.feed(i, list[1])
	}
	r.now = r.now.Add(900 * time.Millisecond)
	r.feed(10, list[0])
	r.feed(11, list[1])
	r.now = r.now.Add(200 * time.Millisecond)
	r.feed(12, list[1])
	if got := r.endings(); len(got) != 9 || got[8] != "9 undecoded" || r.asked != 0 {
		t.Errorf("endings %q, asked %d times", got, r.asked)
	}
	r.now = r.now.Add(900 * time.Millisecond) // by now the key frame is late too
	r.feed(13, list[1])
	if got := r.endings(); len(got) != 13 || got[9] != "10 undecoded" || got[12] != "13 undecoded" || r.asked != 1 {
		t.Errorf("endings %q, asked %d times", got, r.asked)
	}
}

// The first frame after a gap has a discontinuity, whenever the frames before the gap
// are decoded.
func TestFrameAfterAGap(t *testing.T) {
	list := videotest.Chunks(t, "h264", 64, 48, 4)
	r := newRig(t, stream.H264, stream.Every)
	for i := range 4 {
		r.feed(i, list[i])
	}
	r.feed(4, []byte("garbage"))
	r.feed(5, list[0])
	r.feed(6, list[1])
	r.ended(7)
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.breaks) // appended by two goroutines
	if !slices.Equal(r.breaks, []uint64{0, 5}) {
		t.Errorf("frames %d say that they do not follow", r.breaks)
	}
}

// Frames have the size needed by the model, and the full size from the first key frame after a request for a region.
// A new size of the video does not need a region.
func TestSizes(t *testing.T) {
	region := func(f *stream.Frame) { f.Region = stream.Region{X: 10, Y: 10, Width: 20, Height: 20} }
	small, large := videotest.Chunks(t, "vp8", 160, 120, 2), videotest.Chunks(t, "vp8", 320, 200, 2)
	for _, test := range []struct {
		name   string
		fit    string
		feed   func(r *rig)
		want   []string
		frames int
		asked  int
	}{
		{"small", "stretch", func(r *rig) {
			r.feed(0, small[0])
			r.feed(1, small[1])
		}, []string{"0: 64x48 of 160x120", "1: 64x48 of 160x120"}, 2, 0},
		{"letterbox", "letterbox", func(r *rig) {
			r.feed(0, large[0])
			r.feed(1, large[1])
		}, []string{"0: 64x40 of 320x200", "1: 64x40 of 320x200"}, 2, 0},
		{"new size", "stretch", func(r *rig) {
			r.feed(0, small[0])
			r.feed(1, large[0])
		}, []string{"0: 64x48 of 160x120", "1: 64x48 of 320x200"}, 2, 0},
		{"region from the beginning", "stretch", func(r *rig) {
			r.feed(0, small[0], region)
			r.feed(1, small[1])
		}, []string{"0: 160x120 of 0x0", "1: 160x120 of 0x0"}, 2, 0},
		{"region later", "stretch", func(r *rig) {
			r.feed(0, small[0])
			r.ended(1)
			r.feed(1, small[1], region) // of the small picture: a delta frame cannot begin an ffmpeg
			r.until("a key frame is asked for", func() bool { return r.asked == 1 })
			r.feed(2, small[0])
			r.feed(3, small[1])
		}, []string{"0: 64x48 of 160x120", "1: 64x48 of 160x120", "2: 160x120 of 0x0", "3: 160x120 of 0x0"}, 4, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newPictureRig(t, stream.VP8, 64, 48, test.fit)
			test.feed(r)
			r.ended(test.frames)
			r.mu.Lock()
			defer r.mu.Unlock()
			slices.Sort(r.sizes) // appended by several goroutines
			if !slices.Equal(r.sizes, test.want) || r.asked != test.asked {
				t.Errorf("frames %q, want %q; asked %d times for a key frame", r.sizes, test.want, r.asked)
			}
		})
	}
}

// After a device failure a video continues in software from the next key frame on, at once, without blaming the
// client. The client sends the key frame while the decoder is still asking for one.
func TestDeviceFails(t *testing.T) {
	uses := videotest.Hardware(t, true)
	list := videotest.Chunks(t, "h264", 64, 48, 5)
	device := video.NewHardware(video.VAAPI, nil)
	if f := device.Find(t.Context()); f.Use != video.VAAPI {
		t.Fatalf("%+v", f)
	}
	r := newRig(t, stream.H264, stream.Every, func(o *decoders.Options) { o.Hardware, o.Sandbox = device, false })
	r.asking = make(chan struct{})
	asked := sync.OnceFunc(func() { close(r.asking) })
	defer asked()
	for i := range list {
		r.feed(i, list[i])
	}
	r.until("a key frame is asked for", func() bool { return r.asked > 0 && len(r.log) >= 5 })
	r.feed(5, list[0])
	r.feed(6, list[1])
	for range 1000 {
		runtime.Gosched() // the decoder takes the key frame
	}
	asked()
	r.ended(7)
	got := r.endings()
	slices.Sort(got)
	if want := []string{"0 result", "1 result", "2 result", "3 undecoded", "4 undecoded", "5 result",
		"6 result"}; !slices.Equal(got, want) || uses() != 1 {
		t.Errorf("endings %q, want %q; the device was used %d times", got, want, uses())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) > 0 {
		t.Errorf("logged %v", r.told)
	}
}

// A decoder has a place from its first key frame until its end. Closing the decoder with frames inside ends each
// frame once.
func TestPlaces(t *testing.T) {
	list := videotest.Chunks(t, "vp9", 64, 48, 10)
	r := newRig(t, stream.VP9, stream.Every)
	var silent []*decoders.Decoder // without places
	for range 16 {
		d, err := r.pool.Open(stream.VP8, r.st, r.mem, decoders.Client{KeyFrame: func() {}})
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, d)
	}
	if n := r.pool.Running(); n != 0 {
		t.Errorf("%d videos are being decoded before the first key frame", n)
	}
	for i, c := range list {
		r.feed(i, c)
	}
	r.ended(1)
	if n := r.pool.Running(); n != 1 {
		t.Errorf("%d videos are being decoded, want 1", n)
	}
	if _, err := r.pool.Open(stream.VP8, r.st, r.mem, decoders.Client{}); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("%v, while all places are taken", err)
	}
	l, err := r.mem.Copy(videotest.Chunks(t, "vp8", 64, 48, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	silent[0].Feed(stream.Frame{Seq: 100, Payload: l.Bytes(), Lease: l}, r.now)
	r.until("the second is refused", func() bool { return slices.Contains(r.log, "100 overloaded") })
	for _, d := range silent {
		d.Close()
		<-d.Finished()
	}
	if n := r.pool.Running(); n != 1 {
		t.Errorf("%d videos are being decoded after the others were closed, want 1", n)
	}
	for _, f := range r.Close() {
		r.end(f.Seq, "left")
	}
	<-r.Finished()
	if n := r.pool.Running(); n != 0 {
		t.Errorf("%d videos are open", n)
	}
	r.ended(11)
	for i := range 10 {
		n := 0
		for _, e := range r.endings() {
			if strings.HasPrefix(e, fmt.Sprint(i, " ")) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("frame %d has %d endings: %q", i, n, r.endings())
		}
	}
	r.pool.Close()
	if _, err := r.pool.Open(stream.VP9, r.st, r.mem, decoders.Client{}); stream.CodeOf(err) != stream.Draining {
		t.Errorf("a closed pool opens a video: %v", err)
	}
}

// A client can take the places of its quota; other clients keep their places.
func TestPlacesOfAClient(t *testing.T) {
	key := videotest.Chunks(t, "vp9", 64, 48, 1)[0]
	r := newRig(t, stream.VP9, stream.Every, func(o *decoders.Options) { o.MaxDecoders = 3 })
	accounts := [2]stream.Account{}
	for i := range accounts {
		accounts[i].SetLimits(stream.Limits{stream.QuotaDecoders: 1}, time.Second)
	}
	open := func(of int) (*decoders.Decoder, error) {
		return r.pool.Open(stream.VP9, r.st, r.mem, decoders.Client{
			Account: &accounts[of], KeyFrame: func() {}, Refused: func(f *stream.Frame, _ error) {
				r.end(f.Seq, "refused")
			},
		})
	}
	seq := 0
	feed := func(d *decoders.Decoder, want string) {
		t.Helper()
		seq++
		l, err := r.mem.Copy(key)
		if err != nil {
			t.Fatal(err)
		}
		d.Feed(stream.Frame{Seq: uint64(seq), Payload: l.Bytes(), Lease: l}, r.now)
		r.ended(seq)
		if got := r.endings()[seq-1]; got != fmt.Sprint(seq, " ", want) {
			t.Errorf("%q, want %s", got, want)
		}
	}
	var all []*decoders.Decoder
	for _, of := range []int{0, 0, 1} {
		d, err := open(of)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	feed(all[0], "result")
	feed(all[1], "flow_control")
	var e *stream.Error
	if d, err := open(0); !errors.As(err, &e) || e.Field != "quotas.decoders" || e.Code != stream.FlowControl {
		t.Errorf("%v", err)
		if err == nil {
			d.Close()
		}
	}
	feed(all[2], "result")
	feed(r.Decoder, "result") // the client has no limit
	all[0].Close()
	<-all[0].Finished()
	feed(all[1], "result")
	for _, d := range all[1:] {
		d.Close()
		<-d.Finished()
	}
	if n := r.pool.Running(); n != 1 {
		t.Errorf("%d videos are being decoded, want 1", n)
	}
	if accounts[0].Used(stream.QuotaDecoders) != 0 || accounts[1].Used(stream.QuotaDecoders) != 0 {
		t.Error("places were not given back")
	}
}

// The memory of an ffmpeg is charged to the memory budget while the ffmpeg runs. Without room, a key frame ends with
// the budget's error, and a later key frame is decoded.
func TestMemory(t *testing.T) {
	key := videotest.Chunks(t, "vp9", 64, 48, 1)[0]
	r := newRig(t, stream.VP9, stream.Every)
	need := video.Memory(64 * 48)
	taken := r.mem.Stats().Budget - need
	if err := r.mem.Charge(taken); err != nil {
		t.Fatal(err)
	}
	r.feed(0, key) // the chunk itself needs some
	r.ended(1)
	if used := r.mem.Stats().Leased - taken; used != 0 {
		t.Errorf("%d bytes are charged for a video that is not decoded", used)
	}
	r.mem.Refund(taken)
	r.feed(1, key)
	r.ended(2)
	if got := r.endings(); !slices.Equal(got, []string{"0 memory", "1 result"}) {
		t.Errorf("%q", got)
	}
	if used := r.mem.Stats().Leased; used < need {
		t.Errorf("%d bytes are charged while a video is decoded, want %d", used, need)
	}
}

// The memory of a client's videos counts in the share of the client's messages, and in the share of the account over
// all its connections. With the share used up, a key frame ends with the share's error; other clients' key frames are
// decoded.
func TestShareOfVideos(t *testing.T) {
	key := videotest.Chunks(t, "vp9", 64, 48, 1)[0]
	r := newRig(t, stream.VP9, stream.Every, func(o *decoders.Options) { o.MaxDecoders = 8 })
	r.mem.LimitShares(2) // of 1 GiB, room for one video
	share := r.mem.Stats().Budget / 50
	var accounts [2]stream.Account
	var connections [3]buf.ClientShare
	open := func(account, connection int) *decoders.Decoder {
		t.Helper()
		d, err := r.pool.Open(stream.VP9, r.st, r.mem, decoders.Client{
			Account: &accounts[account], Share: &connections[connection], KeyFrame: func() {},
			Refused: func(f *stream.Frame, _ error) {
				r.end(f.Seq, "refused")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close(); <-d.Finished() })
		return d
	}
	seq := 0
	feed := func(what string, d *decoders.Decoder, want string) {
		t.Helper()
		seq++
		l, err := r.mem.Copy(key)
		if err != nil {
			t.Fatal(err)
		}
		d.Feed(stream.Frame{Seq: uint64(seq), Payload: l.Bytes(), Lease: l}, r.now)
		r.ended(seq)
		if got := r.endings()[seq-1]; got != fmt.Sprint(seq, " ", want) {
			t.Errorf("%s: %q, want %s", what, got, want)
		}
	}
	first, second := open(0, 0), open(0, 0)
	feed("the first video", first, "result")
	feed("another one", second, "memory")
	feed("one of another connection", open(0, 1), "memory")
	feed("one of another account at the address", open(1, 0), "memory")
	feed("one of another client", open(1, 2), "result")
	first.Close()
	<-first.Finished()
	messages := share - video.Memory(64*48) + 1
	if err := r.mem.ChargeTo(messages, &connections[0]); err != nil {
		t.Fatal(err)
	}
	feed("one beside messages", second, "memory")
	r.mem.RefundFrom(messages, &connections[0])
	feed("one after them", second, "result")
	second.Close()
	<-second.Finished()
	if err := r.mem.ChargeTo(share, &connections[0], accounts[0].Memory()); err != nil {
		t.Error("the memory of a video was not given back")
	}
	r.mem.RefundFrom(share)
}

// The number of bytes limits the size in a key frame's header, as for pictures.
func TestTooFewBytesForItsSize(t *testing.T) {
	const w, h = 8191, 6000
	r := newRig(t, stream.VP8, stream.Every)
	// a header of VP8, without the picture
	r.feed(0, []byte{0x10, 0, 0, 0x9d, 0x01, 0x2a, w & 0xFF, w >> 8, h & 0xFF, h >> 8})
	r.ended(1)
	r.feed(1, videotest.Chunks(t, "vp8", 64, 48, 1)[0])
	r.ended(2)
	if got := r.endings(); !slices.Equal(got, []string{"0 too_large", "1 result"}) {
		t.Errorf("%q", got)
	}
}

// niceOf returns the nice values of the ffmpegs started by this process.
func niceOf(t *testing.T) (out []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		name, rest, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(rest) // from the third field of proc(5) on
		if !strings.HasSuffix(name, "(ffmpeg") || len(f) < 17 || f[1] != fmt.Sprint(os.Getpid()) {
			continue
		}
		n, err := strconv.Atoi(f[16])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// An ffmpeg of a client has a lower priority than the server's own threads. While the ffmpeg runs, its memory reduces
// the limit of the server's heap.
func TestDecodersGiveWay(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("priorities of processes are read from /proc")
	}
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "")
	heap := processors.OwnHeap(1 << 30)
	defer heap.Close()
	whole := debug.SetMemoryLimit(-1)
	r := newRig(t, stream.VP9, stream.Every)
	r.mem.OnOutside(heap.ReserveOutside)
	r.feed(0, videotest.Chunks(t, "vp9", 64, 48, 1)[0])
	r.ended(1)
	if got, want := niceOf(t), min(20-own+video.ClientNice, 19); !slices.Equal(got, []int{want}) {
		t.Errorf("the nice values of ffmpegs are %v, want %d", got, want)
	}
	if got, want := debug.SetMemoryLimit(-1), whole-video.Memory(64*48); got != want {
		t.Errorf("the limit of the heap is %d beside a decoder, want %d", got, want)
	}
	r.Close()
	<-r.Finished()
	if got := debug.SetMemoryLimit(-1); got != whole {
		t.Errorf("the limit of the heap is %d after the decoder, want %d", got, whole)
	}
}

// A client is charged for the processor time of its ffmpegs. While the client is over its quota, chunks are dropped
// as `quota` without a request for a key frame. Once the quota is restored, decoding continues with the next key
// frame.
func TestQuotaOfDecoding(t *testing.T) {
	list := videotest.Chunks(t, "vp8", 64, 48, 2)
	used := func() time.Duration { // processor time of ended children
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	r := &rig{t: t, mem: buf.NewPool(0), now: stream.Now(), news: make(chan struct{}, 1), of: &stream.Account{}}
	r.of.SetLimits(stream.Limits{stream.QuotaDecode: 1e-3}, time.Millisecond)
	r.open(stream.VP8, stream.Every, decoders.Options{Limits: ingest.Limits{MaxDecoders: 1},
		Sandbox: child.SandboxError() == nil}, &stream.Model{Name: "any", AcceptsAnyInput: true, Ragged: true,
		MaxBatch: 4})
	r.feed(0, list[0])
	r.ended(1)
	r.feed(1, list[1])
	r.feed(2, list[0])
	r.ended(3)
	if r.asked != 0 || r.of.Denied(stream.QuotaDecode) != 2 {
		t.Errorf("asked %d times for a key frame; %d refused", r.asked, r.of.Denied(stream.QuotaDecode))
	}
	r.now = r.now.Add(24 * time.Hour)
	r.feed(3, list[1])
	r.until("a request for a key frame", func() bool { return r.asked == 1 })
	r.feed(4, list[0])
	r.ended(5)
	if got := r.endings(); !slices.Equal(got, []string{"0 result", "1 quota", "2 quota", "3 undecoded", "4 result"}) {
		t.Errorf("%q", got)
	}
	r.End()
	<-r.Finished()
	charged := time.Duration(r.of.Used(stream.QuotaDecode))
	// each is rounded to microseconds
	if d := charged - (used() - before); charged < time.Millisecond || d.Abs() > time.Millisecond {
		t.Errorf("%v are charged, and ffmpeg has used %v", charged, charged-d)
	}
}

// An ffmpeg that computes without returning pictures is ended with an error that names the setting, and is counted;
// the client is charged. Other videos go on, and this video continues with a key frame.
func TestVideoThatOnlyComputes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the processor time of a child that runs is not known here")
	}
	list := videotest.Hidden(t, 640, 360, 1, 1)
	r := &rig{t: t, mem: buf.NewPool(0), now: stream.Now(), news: make(chan struct{}, 1), of: &stream.Account{}}
	r.open(stream.VP9, stream.Every, decoders.Options{Limits: ingest.Limits{MaxDecoders: 2,
		MaxDecodeTime: 20 * time.Millisecond}, Sandbox: child.SandboxError() == nil, Log: slog.New(recorder{r})},
		&stream.Model{Name: "any", AcceptsAnyInput: true, Ragged: true, MaxBatch: 4})
	other, err := r.pool.Open(stream.VP9, r.st, r.mem,
		decoders.Client{KeyFrame: func() {}, Refused: func(f *stream.Frame, err error) {
			r.end(f.Seq, "refused")
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { other.Close(); <-other.Finished() }()
	feedOther := func(seq int) {
		l, err := r.mem.Copy(list[0])
		if err != nil {
			t.Fatal(err)
		}
		other.Feed(stream.Frame{Seq: uint64(seq), Payload: l.Bytes(), Lease: l}, r.now)
	}
	feedOther(1000)
	r.feed(0, list[0])
	r.ended(2)
	// The hidden chunks are key frames: on a slow machine, hidden chunks that wait would start ffmpeg again. So each
	// hidden chunk comes when ffmpeg has used processor time for the one before.
	started, hidden := r.of.Used(stream.QuotaDecode), 0
	for over := time.Now().Add(patience); len(r.endings()) == 2; hidden++ {
		before := r.of.Used(stream.QuotaDecode)
		r.feed(1+hidden, list[1])
		for len(r.endings()) == 2 && r.of.Used(stream.QuotaDecode) == before {
			if time.Now().After(over) {
				t.Fatalf("%d chunks were decoded", hidden)
			}
			time.Sleep(time.Millisecond) // no event to wait for
		}
	}
	feedOther(1001)
	r.ended(2 + hidden + 1)
	got := r.endings()
	for i := range hidden { // chunks after the end of ffmpeg wait for a key frame
		if seq := fmt.Sprint(1 + i); !slices.Contains(got, seq+" timeout") &&
			(i == 0 || !slices.Contains(got, seq+" undecoded")) {
			t.Fatalf("frame %s in %q", seq, got)
		}
	}
	if !slices.Contains(got, "1000 result") || !slices.Contains(got, "1001 result") || r.pool.TooSlow() != 1 ||
		r.of.Used(stream.QuotaDecode)-started < int64(20*time.Millisecond) {
		t.Errorf("%q; %d are too slow; %v charged", got, r.pool.TooSlow(),
			time.Duration(r.of.Used(stream.QuotaDecode)-started))
	}
	if text := r.why[1]; !strings.Contains(text, "over limits.max_decode_time=20ms") {
		t.Errorf("%q", text)
	}
	for seq := 2000; !slices.Contains(r.endings(), fmt.Sprint(seq, " result")); { // ffmpeg is not started anew at once
		seq++
		n := len(r.endings())
		r.feed(seq, list[0])
		r.ended(n + 1)
		if e := r.endings()[n]; strings.HasSuffix(e, " result") {
			break
		} else if e != fmt.Sprint(seq, " undecoded") {
			t.Fatalf("%q", e)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) != 0 {
		t.Errorf("logged %v", r.told)
	}
}

// A panic ends one video and is logged. The video's place is free again.
func TestPanic(t *testing.T) {
	r := newRig(t, stream.VP9, stream.Every, func(o *decoders.Options) { o.MaxDecoders = 2 })
	d, err := r.pool.Open(stream.VP9, r.st, r.mem, decoders.Client{Refused: func(*stream.Frame, error) {
		panic("a fault")
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.st.Close(stream.ByClient)
	l, err := r.mem.Copy(videotest.Chunks(t, "vp9", 64, 48, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	d.Feed(stream.Frame{Payload: l.Bytes(), Lease: l}, r.now)
	r.until("it is logged", func() bool { return len(r.told) == 1 })
	_ = d.Close()
	<-d.Finished()
	if n := r.pool.Running(); n != 0 {
		t.Errorf("%d videos are being decoded", n)
	}
}

// Bad input of a client is reported to the client, not logged as a fault.
func TestReorderedVideo(t *testing.T) {
	list := videotest.Chunks(t, "h264", 64, 48, 12, "-tune", "film", "-bf", "2", "-x264-params",
		"aud=1:bframes=2:b-adapt=0")
	r := newRig(t, stream.H264, stream.Every)
	for i, c := range list {
		r.feed(i, c)
	}
	r.End()
	r.ended(len(list))
	if got := r.endings(); !slices.ContainsFunc(got, func(e string) bool {
		return strings.HasSuffix(e, " invalid_argument")
	}) {
		t.Errorf("endings %q", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) > 0 {
		t.Errorf("logged %v", r.told)
	}
}

// After a kill of its ffmpeg, a video continues with a key frame.
func TestKilled(t *testing.T) {
	list := videotest.Chunks(t, "vp8", 64, 48, 2)
	real := testneeds.Program(t, "ffmpeg")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pid"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nmkdir %s/pid/$$\nexec %s \"$@\"\n", dir, real)
	testneeds.WriteProgram(t, filepath.Join(dir, "ffmpeg"), script)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r := newRig(t, stream.VP8, stream.Every, func(o *decoders.Options) { o.Sandbox = false }) // the program writes
	r.feed(0, list[0])
	r.ended(1)
	started, err := os.ReadDir(filepath.Join(dir, "pid"))
	if err != nil || len(started) != 1 {
		t.Fatal(started, err)
	}
	pid, err := strconv.Atoi(started[0].Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.until("it is told", func() bool { return r.asked > 0 && len(r.told) > 0 })
	seq := 0
	for end := time.Now().Add(patience); time.Now().Before(end); { // ffmpeg is not restarted at once
		seq++
		r.feed(seq, list[0])
		r.ended(seq + 1)
		if e := r.endings()[seq]; strings.HasSuffix(e, " result") {
			break
		} else if !strings.HasSuffix(e, " undecoded") {
			t.Fatalf("%q", e)
		}
	}
	r.feed(seq+1, list[1])
	r.ended(seq + 2)
	if got := r.endings()[seq+1]; !strings.HasSuffix(got, " result") {
		t.Errorf("%q", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) != 1 || r.told[0].Level != slog.LevelWarn {
		t.Errorf("logged %v", r.told)
	}
}
