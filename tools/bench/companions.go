package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"millrace/stream"
	"millrace/workers"
)

const (
	companions     = 6 // callers that wait for their answers
	leavers        = 6 // callers that give up, in the same batches
	companionBatch = 5 * time.Millisecond
)

// canceledCompanions compares the latency of callers sharing batches with cancelled requests, waiting or running,
// with the latency of callers alone. The time of a batch is the same for every number of rows.
func canceledCompanions(b *bench) error {
	s, err := serve(nil, workers.Config{Name: "delay", Source: "delay",
		Batching: workers.Batching{MaxSize: companions + leavers},
		Params:   stream.Params{"fixed": companionBatch.String(), "per_item": "0s"}})
	if err != nil {
		return err
	}
	gaveUp := 0
	row, err := b.pair(fmt.Sprintf("latency of %d callers, beside %d that give up", companions, leavers), "ns",
		func(d time.Duration) (float64, error) { t, _, err := latency(s, d, 0); return t, err },
		func(d time.Duration) (float64, error) {
			t, n, err := latency(s, d, leavers)
			gaveUp += n
			return t, err
		})
	if e := s.end(); err == nil {
		err = e
	}
	if err == nil && gaveUp == 0 {
		err = fmt.Errorf("%s: no caller has given up", row.Name)
	}
	if err != nil {
		return err
	}
	b.add(row)
	return nil
}

// latency returns the mean latency of the companions, and the number of other callers that gave up.
func latency(s *target, d time.Duration, others int) (mean float64, gaveUp int, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var took time.Duration
	answered, end := 0, time.Now().Add(d)
	for i := range companions + others {
		leaves := i >= companions
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				ctx, cancel := context.Background(), func() {}
				if leaves { // at moments spread over a wait and a run
					ctx, cancel = context.WithTimeout(ctx, companionBatch*time.Duration(1+(n*7+i)%16)/8)
				}
				began := time.Now()
				r, e := s.Native().InferBytes(ctx, "delay", stream.Opaque, []byte{1})
				t := time.Since(began)
				cancel()
				mu.Lock()
				switch {
				case e == nil && !leaves:
					took, answered = took+t, answered+1
				case e != nil && leaves:
					gaveUp++
				case e != nil:
					err = e
				}
				mu.Unlock()
				if e == nil {
					r.Release()
				}
			}
		})
	}
	all.Wait()
	return float64(took) / float64(max(answered, 1)), gaveUp, err
}
