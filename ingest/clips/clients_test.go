package clips

import (
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/codec"
	"millrace/internal/video"
	"millrace/internal/video/videotest"
	"millrace/stream"
	"millrace/stream/buf"
)

// clientRig makes clips of all video of clients.
type clientRig struct {
	*Clients
	t      *testing.T
	later  atomic.Int64 // the clock is ahead by, in ns
	begun  time.Time
	memory *buf.Pool
	list   [][]byte // VP8, with a key frame each second
}

func newClientRig(t *testing.T, o Options, memory int64) *clientRig {
	t.Helper()
	r := &clientRig{t: t, begun: time.Now(), memory: buf.NewPool(64 << 20),
		list: videotest.Chunks(t, "vp8", 96, 64, 30)}
	o.Folder, o.Memory, o.Log = t.TempDir(), 8<<20, slog.New(slog.DiscardHandler)
	o.Now = func() time.Time { return r.begun.Add(time.Duration(r.later.Load())) }
	store, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Clients = NewClients(ClientSettings{On: []string{Always}, Memory: memory}, store, codec.Limits{}, o.Log)
	store.Close() // Clients is the other user
	t.Cleanup(func() {
		for s := range r.open {
			s.Close()
		}
		r.Close()
		if n, used := r.memory.Stats().Leases, r.all.used.Load(); n != 0 || used != 0 {
			t.Errorf("%d leases and %d bytes left", n, used)
		}
		if _, err := store.root(); err == nil {
			t.Error("the folder is open after its last user")
		}
	})
	return r
}

// send sends the chunk with a number, at a time.
func (r *clientRig) send(s *ClientStream, i int, at time.Duration) {
	r.t.Helper()
	info, err := video.ParseChunk("vp8", r.list[i])
	if err != nil {
		r.t.Fatal(err)
	}
	s.Chunk(&stream.Frame{Codec: stream.VP8, CaptureUS: at.Microseconds()}, info, nil, r.list[i], 1)
}

// ended waits for the ends of all clips, and returns the reasons.
func (r *clientRig) ended() (cuts []Cut) {
	for s := range r.open {
		s.Close()
	}
	r.writers.Stop()
	r.writers.Wait()
	list, _ := r.store.List(Query{Limit: 99, Keep: func(*Clip) bool { return true }})
	for _, c := range list {
		cuts = append(cuts, c.Cut)
	}
	return cuts
}

// The clip of a client that sends no video any more ends, and its memory is free.
func TestSilentClient(t *testing.T) {
	r := newClientRig(t, Options{MaxBytes: 1 << 30}, 1<<20)
	s := r.Open("a/1", "m", r.memory)
	for i := range 15 {
		r.send(s, i, time.Second+time.Duration(i)*100*time.Millisecond)
	}
	r.endSilent(stream.Instant(maxGap))
	if r.all.used.Load() == 0 {
		t.Error("the clip ended early")
	}
	r.endSilent(stream.Instant(maxGap) + 2)
	if cuts := r.ended(); !slices.Equal(cuts, []Cut{CutSilent}) {
		t.Errorf("%q", cuts)
	}
	if n := r.all.used.Load(); n != 0 {
		t.Errorf("%d bytes are kept of a silent client", n)
	}
}

// The streams of all clients keep clips.clients.memory at most.
func TestMemoryOfClients(t *testing.T) {
	const most = 3000
	r := newClientRig(t, Options{MaxBytes: 1 << 30}, most)
	a, b := r.Open("a/1", "m", r.memory), r.Open("a/2", "m", r.memory)
	for i := range 30 {
		at := time.Second + time.Duration(i)*100*time.Millisecond
		r.send(a, i, at)
		r.send(b, i, at)
		if n := r.all.used.Load(); n > most || n == 0 {
			t.Fatalf("%d bytes", n)
		}
	}
}

// A client whose clock jumps begins one clip a second.
func TestClientBeginsFewClips(t *testing.T) {
	r := newClientRig(t, Options{MaxBytes: 1 << 30}, 1<<20)
	s := r.Open("a/1", "m", r.memory)
	for i := range 9 {
		r.send(s, 0, time.Duration(i+1)*time.Minute)
	}
	r.later.Add(int64(clientPause))
	r.send(s, 0, time.Hour)
	s.Close()
	if cuts := r.ended(); !slices.Equal(slices.Sorted(slices.Values(cuts)), []Cut{CutClock, CutStopped}) {
		t.Errorf("%q", cuts)
	}
}

// Clips of clients take the place of other clips of clients, never of a camera's.
func TestClipsOfClientsAreBounded(t *testing.T) {
	r := newClientRig(t, Options{MaxBytes: 1 << 30, ClientBytes: 8000}, 1<<20)
	camera := &Clip{ID: "20261130-000000-A", Stream: "gate", Begin: r.begun.Add(-time.Hour), State: Ready,
		Bytes: 1 << 20}
	camera.path = place(camera.ID, camera.Stream)
	r.store.add(camera)
	s := r.Open("../1", "m", r.memory)
	for i := range 20 {
		r.later.Add(int64(clientPause))
		for k := range 10 { // 1 key frame and 9 others
			r.send(s, k, time.Duration(i+1)*time.Minute+time.Duration(k)*100*time.Millisecond)
		}
	}
	s.Close()
	n, own := len(r.ended()), r.store.client
	if own.bytes == 0 || own.bytes > 8000 || own.clips != n-1 || n >= 20 {
		t.Errorf("%d clips, %+v", n, own)
	}
	if _, err := r.store.Get(camera.ID); err != nil {
		t.Error(err)
	}
	_ = fs.WalkDir(os.DirFS(r.store.o.Folder), ".", func(name string, d fs.DirEntry, _ error) error {
		if d.IsDir() && d.Name() != "." && d.Name() != "%2E.%2F1" && len(d.Name()) != len(time.DateOnly) {
			t.Errorf("the folder %s", name)
		}
		return nil
	})
}
