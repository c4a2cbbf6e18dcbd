package main

import (
	"context"
	"fmt"
	"time"

	"millrace/client"
	"millrace/internal/ctxio"
)

// StreamLine is a row of the report: the counts of a server stream by the server and by its sinks.
type StreamLine struct {
	Name    string `json:"name"`
	Frames  uint64 `json:"frames"` // read from the source
	Results uint64 `json:"results"`
	Errors  uint64 `json:"errors"`
	Drops   uint64 `json:"drops"`
	Lost    uint64 `json:"lost"` // for want of memory
	File    uint64 `json:"file_lines"`
	Webhook uint64 `json:"webhook_results"`
	Retries uint64 `json:"webhook_retries"`
	Opened  uint64 `json:"opened_again"`
}

// stayers are the permanent streams of the run.
var stayers = []string{loopStream, programStream, cameraStream}

// settle ends the sources of the permanent streams, waits until each frame has an ending and each result was
// delivered, and compares the counts of the server with the files, the posts and the metrics.
func (r *run) settle(ctx context.Context, report *Report) error {
	r.cameras[0].dead.Store(true)
	r.cameras[0].cut()
	source := r.cameras[0].address()
	for _, name := range stayers {
		if _, err := r.api.ChangeServerStream(ctx, name, client.StreamChange{Source: &source}); err != nil {
			return err
		}
	}
	for _, name := range stayers {
		s, err := r.stream(ctx, name, sinkPatience, func(s *client.ServerStream) bool {
			return s.State == "waiting" && ended(s) && delivered(s)
		})
		if err != nil {
			return err
		}
		report.Streams = append(report.Streams, r.streamLine(s))
	}
	m, err := r.scrape(ctx)
	if err != nil {
		return err
	}
	r.compareStreams(m, report.Streams)
	return nil
}

// stream waits until a stream is as wanted.
func (r *run) stream(ctx context.Context, name string, d time.Duration,
	wanted func(*client.ServerStream) bool) (s client.ServerStream, err error) {
	for limit := time.Now().Add(d); ; ctxio.Sleep(ctx, 100*time.Millisecond) {
		if s, err = r.api.ServerStream(ctx, name); err != nil || wanted(&s) {
			return s, err
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			return s, fmt.Errorf("stream %s is not as wanted after %v: %+v, error %+v", name, d, s, s.Error)
		}
	}
}

func drops(s *client.ServerStream) (n uint64) {
	for _, d := range s.Drops {
		n += d
	}
	return n
}

// ended reports whether each frame of a stream of one model has an ending.
func ended(s *client.ServerStream) bool {
	return s.Frames == s.Results+s.Errors+drops(s)+s.Lost.Frames
}

// delivered reports whether no result waits for a sink.
func delivered(s *client.ServerStream) bool {
	for _, k := range s.Sinks {
		if k.Sent+k.Lost != s.Results+s.Errors {
			return false
		}
	}
	return true
}

// streamLine compares the counts of a settled stream with the counts of its sinks.
func (r *run) streamLine(s client.ServerStream) StreamLine {
	l := StreamLine{Name: s.Name, Frames: s.Frames, Results: s.Results, Errors: s.Errors, Drops: drops(&s),
		Lost: s.Lost.Frames, Opened: s.Restarts}
	if k, ok := s.Sinks["file"]; ok {
		n, err := lines(r.site.file(s.Name), s.Name)
		r.problem(err)
		if l.File = n; n != k.Sent || k.Lost > 0 {
			r.problem(fmt.Errorf("stream %s: its files have %d results, the server has written %d and lost %d", s.Name,
				n, k.Sent, k.Lost))
		}
	}
	if k, ok := s.Sinks["webhook"]; ok {
		if l.Webhook, l.Retries = r.receiver.got(s.Name), k.Retries; l.Webhook != k.Sent {
			r.problem(fmt.Errorf("stream %s: the receiver of its webhook has accepted %d results, the server has "+
				"delivered %d and lost %d", s.Name, l.Webhook, k.Sent, k.Lost))
		}
	}
	return l
}

// compareStreams compares the metrics of the permanent streams with their reports and with the metrics of their
// model.
func (r *run) compareStreams(m metrics, streams []StreamLine) {
	var results, drops, errors uint64
	for _, l := range streams {
		got := func(outcome string) uint64 {
			return uint64(m.sum("millrace_stream_frames_total", "stream", l.Name, "outcome", outcome))
		}
		if got("result") != l.Results || got("drop") != l.Drops || got("error") != l.Errors ||
			uint64(m.sum("millrace_stream_read_frames_total", "stream", l.Name)) != l.Frames {
			r.problem(fmt.Errorf("stream %s: its report has %+v, /metrics has %d results, %d drops, %d errors", l.Name,
				l, got("result"), got("drop"), got("error")))
		}
		results, drops, errors = results+l.Results, drops+l.Drops, errors+l.Errors
	}
	s := m.served(findModel)
	if s.Result != results || sum(s.Drops) != drops || sum(s.Errors) != errors {
		r.problem(fmt.Errorf("model %s: its streams have %d results, %d drops, %d errors, /metrics has %+v", findModel,
			results, drops, errors, s))
	}
}

// restore returns the permanent streams, and the configuration, to their initial state.
func (r *run) restore(ctx context.Context) error {
	r.cameras[0].heal()
	if err := r.reload(ctx, first); err != nil {
		return err
	}
	for _, name := range stayers {
		if _, err := r.api.ResetServerStream(ctx, name); err != nil {
			return err
		}
	}
	return r.running(ctx)
}

// running waits until the permanent streams have frames again.
func (r *run) running(ctx context.Context) error {
	for _, name := range stayers {
		s, err := r.api.ServerStream(ctx, name)
		if err != nil {
			return err
		}
		before := s.Results
		if _, err := r.stream(ctx, name, sinkPatience, func(s *client.ServerStream) bool {
			return s.State == "running" && s.Results > before
		}); err != nil {
			return err
		}
	}
	return nil
}
