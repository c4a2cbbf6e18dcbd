package clips

import (
	"log/slog"
	"testing"
	"time"

	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream/buf"
)

// BenchmarkPacket keeps the packets of a camera with 3 Mbit/s, 30 pictures a second and a key frame each second, 10 s
// before an event, and reports the memory. One packet is 1/30 s of one camera.
func BenchmarkPacket(b *testing.B) {
	s, err := Open(Options{Folder: b.TempDir(), MaxBytes: 1, Memory: 32 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	memory := buf.NewPool(0)
	r := NewRecorder(Env{Store: s, Memory: memory})
	before := 10 * time.Second
	r.Set(Settings{On: []string{"cross"}, Before: &before}, nil)
	f := video.Fragment{Header: &video.MP4Header{}, Data: make([]byte, 3_000_000/8/30)}
	most := int64(0)
	for i := 0; b.Loop(); i++ {
		f.Key, f.Ticks = i%30 == 0, int64(i)
		f.PTS = time.Duration(i) * time.Second / 30
		f.DTS = f.PTS
		r.Packet(sources.Fragment{Fragment: f})
		r.Result("people", f.PTS, nil)
		most = max(most, memory.Stats().Leased)
	}
	b.ReportMetric(float64(most)/1e6, "MB")
	r.Close()
	s.Close()
}
