package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"millrace/tasks/blob"
)

// BenchmarkTask measures tasks of a few bytes from the submission to the result, with the number of clients in the
// name.
func BenchmarkTask(b *testing.B) {
	for _, always := range []bool{false, true} {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("always=%v/clients=%d", always, clients), func(b *testing.B) {
				dir := b.TempDir()
				broker, err := Embed(storeFolder(dir), always, slog.New(slog.DiscardHandler))
				if err != nil {
					b.Fatal(err)
				}
				defer broker.Close()
				files, err := blob.OpenFiles(filepath.Join(dir, "files"), blob.FilesOptions{Sync: always})
				if err != nil {
					b.Fatal(err)
				}
				s, err := Open(b.Context(), broker, files, Options{})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				for range 4 {
					go func() {
						for {
							c, err := s.Claim(ctx, "bench", func(string) bool { return true })
							if err != nil {
								return
							}
							w, _ := c.Create()
							_, _ = w.Write([]byte("done"))
							info, _ := w.Commit()
							_ = c.Finish(File{Info: info})
						}
					}()
				}
				b.ResetTimer()
				var wg sync.WaitGroup
				for i := range clients {
					wg.Add(1)
					go func() {
						defer wg.Done()
						for range (b.N + clients - 1 - i) / clients {
							t, _, err := s.Submit(ctx, Submission{Task: Task{Model: "m"}, Data: text("x")})
							if err != nil {
								b.Error(err)
								return
							}
							for !t.State.Ended() {
								t, _ = s.Wait(ctx, t.ID)
							}
						}
					}()
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
				cancel()
			})
		}
	}
}
