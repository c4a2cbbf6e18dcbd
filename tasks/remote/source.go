package remote

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"millrace/client"
	"millrace/internal/backoff"
	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks"
)

// Options configure a Source.
type Options struct {
	Client *client.Client
	Folder string // for inputs and results while tasks run; the Source makes a folder of its own below
	Log    *slog.Logger
	// Refused is called once when the server refuses the consumer for good: a wrong key, a key without the role work,
	// or a server without tasks. nil = nothing is called.
	Refused func(error)
}

// Source claims tasks of a server on another host. All methods are safe for concurrent use.
type Source struct {
	opts         Options
	folder       *folder
	requestSlots chan struct{} // holds an element for each request for a task

	mu          sync.Mutex
	ready       []string      // the ready models, as last seen
	changed     chan struct{} // closed when the ready models change, or ModelsChanged is called first
	models      tasks.Models
	unreachable bool // the server did not answer the newest request
	refused     bool
}

var (
	_ tasks.Source = (*Source)(nil)
	_ tasks.Claim  = (*claim)(nil)
)

// maxClaimRequests is the largest number of requests for a task at once.
const maxClaimRequests = 4

// longPollTime is how long the server may wait for a task.
const longPollTime = 30 * time.Second

// Open makes the folder of a source, and removes the folders of processes that have ended.
func Open(o Options) (*Source, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f, err := openFolder(o.Folder)
	if err != nil {
		return nil, err
	}
	return &Source{opts: o, folder: f, requestSlots: make(chan struct{}, maxClaimRequests),
		changed: make(chan struct{})}, nil
}

// Close removes the folder. The caller must have ended all claims.
func (s *Source) Close() error { return s.folder.close() }

// Check asks the server whether the consumer may take tasks. Errors: as of Refused; or the server does not answer.
func (s *Source) Check(ctx context.Context, consumer string) error {
	_, err := s.requestTask(ctx, consumer, nil, 0)
	if err != nil && isRefusal(err) {
		return refusalAdvice(err)
	}
	return err
}

// ModelsChanged implements tasks.Source.
func (s *Source) ModelsChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.models == nil {
		return
	}
	if now := s.models.Ready(); !slices.Equal(now, s.ready) {
		s.ready = now
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// readyModels returns the ready models, and a channel that is closed when the models change.
func (s *Source) readyModels(m tasks.Models) (names []string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.models == nil {
		s.models, s.ready = m, m.Ready()
	}
	return s.ready, s.changed
}

// ClaimFor implements tasks.Source.
func (s *Source) ClaimFor(ctx, work context.Context, consumer string, m tasks.Models) (tasks.Claim, error) {
	select {
	case s.requestSlots <- struct{}{}:
		defer func() { <-s.requestSlots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	wait := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for ctx.Err() == nil {
		names, changed := s.readyModels(m)
		if len(names) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		got, err := s.requestTaskUntil(ctx, changed, consumer, names)
		switch {
		case ctx.Err() != nil:
		case err == nil && got == nil: // no task, or the models have changed
			s.logRecovery()
			wait.Reset()
		case err == nil:
			s.logRecovery()
			if c := s.newClaim(work, got); m.Serves(got.Task.Model) {
				return c, nil
			} else if err := c.Release(); err != nil {
				s.opts.Log.Debug("a task of a model that was unloaded cannot be given back", "error", err)
			}
		case isRefusal(err):
			s.reportRefusal(err)
			<-ctx.Done()
		default:
			s.logFailure(err)
			ctxio.Sleep(ctx, cmp.Or(client.RetryAfter(err), wait.Next(rand.Float64())))
		}
	}
	return nil, ctx.Err()
}

// claimReply is the answer with a task.
type claimReply struct {
	Task    tasks.Task `json:"task"`
	LeaseMS int64      `json:"lease_ms"`
}

// requestTaskUntil asks for a task until the ready models change. The server queues a task again whose answer does not
// arrive.
func (s *Source) requestTaskUntil(ctx context.Context, changed <-chan struct{}, consumer string,
	models []string) (*claimReply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() { // ends with the request
		select {
		case <-changed:
			cancel()
		case <-ended:
		}
	}()
	got, err := s.requestTask(ctx, consumer, models, longPollTime)
	select {
	case <-changed:
		if err != nil {
			return nil, nil
		}
	default:
	}
	return got, err
}

// requestTask asks for a task; nil = there was none.
func (s *Source) requestTask(ctx context.Context, consumer string, models []string,
	wait time.Duration) (*claimReply, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+replyTimeout)
	defer cancel()
	var got claimReply
	err := s.post(ctx, claimsRoot, map[string]any{
		"consumer": consumer, "models": append([]string{}, models...), "wait_ms": wait.Milliseconds(),
	}, &got)
	if err != nil || got.Task.ID == "" {
		return nil, err
	}
	return &got, nil
}

// replyTimeout is the time for an answer without a file.
const replyTimeout = 15 * time.Second

// isRefusal reports whether the server refuses the consumer, and no later request can succeed.
func isRefusal(err error) bool {
	switch coded.CodeOf(err) {
	case coded.Unauthenticated, coded.PermissionDenied, coded.NotFound, coded.InvalidArgument:
		return true
	}
	return false
}

// refusalAdvice adds the next step to an error of isRefusal.
func refusalAdvice(err error) error {
	switch coded.CodeOf(err) {
	case coded.NotFound:
		return coded.Errorf(coded.NotFound, "",
			"the server keeps no tasks: start the server with --data FOLDER: %w", err)
	case coded.PermissionDenied:
		return coded.Errorf(coded.PermissionDenied, "", "the server refuses the consumer: %w", err)
	}
	return err
}

// reportRefusal reports the first refusal.
func (s *Source) reportRefusal(err error) {
	s.mu.Lock()
	first := !s.refused
	s.refused = true
	s.mu.Unlock()
	if first && s.opts.Refused != nil {
		s.opts.Refused(refusalAdvice(err))
	}
}

// logFailure logs the first of several failures.
func (s *Source) logFailure(err error) {
	s.mu.Lock()
	first := !s.unreachable
	s.unreachable = true
	s.mu.Unlock()
	if first {
		s.opts.Log.Warn("the server of the tasks does not answer: trying again", "server", s.opts.Client.Addr(),
			"error", err)
	}
}

// logRecovery logs the first answer after failures.
func (s *Source) logRecovery() {
	s.mu.Lock()
	back := s.unreachable
	s.unreachable = false
	s.mu.Unlock()
	if back {
		s.opts.Log.Info("the server of the tasks answers again", "server", s.opts.Client.Addr())
	}
}
