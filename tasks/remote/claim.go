package remote

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"millrace/client"
	"millrace/internal/backoff"
	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// claim is a task of a server elsewhere. The claim renews itself until the end.
type claim struct {
	source    *Source
	task      tasks.Task
	lease     time.Duration
	path      string // of the claim's routes
	folder    string
	ctx       context.Context
	end       context.CancelCauseFunc
	finishing atomic.Bool // a request that ends the claim is on the way: its answer says whether the claim was lost
	closed    sync.Once

	log *logSender

	sending sync.Mutex // held while a request with progress is on the way

	mu        sync.Mutex
	progress  tasks.Progress
	sent      tasks.Progress // the newest progress that the server was told
	reporting bool           // sendProgress runs
}

// newClaim returns the claim of an answer.
func (s *Source) newClaim(work context.Context, g *claimReply) *claim {
	name := g.Task.ID + "/" + strconv.Itoa(g.Task.Attempt)
	c := &claim{source: s, task: g.Task, lease: max(time.Duration(g.LeaseMS)*time.Millisecond, 100*time.Millisecond),
		path: claimsRoot + "/" + name, folder: filepath.Join(s.folder.path, filepath.FromSlash(name))}
	c.ctx, c.end = context.WithCancelCause(work)
	c.log = newLogSender(c)
	go c.renewLoop()
	return c
}

// Task implements tasks.Claim.
func (c *claim) Task() tasks.Task { return c.task }

// Context implements tasks.Claim.
func (c *claim) Context() context.Context { return c.ctx }

// renewLoop renews the claim until the claim ends. The server answers a renewal after a third of the lease, or when the
// task is no longer the consumer's. Without an answer of the server, the task runs on: a server that was started again
// accepts the next renewal.
func (c *claim) renewLoop() {
	each := c.lease / 3
	wait := backoff.Backoff{Min: min(100*time.Millisecond, each/4), Max: min(5*time.Second, each/2)}
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, 2*each)
		begun := time.Now()
		err := c.renew(ctx, min(each, 30*time.Second))
		cancel()
		switch {
		case err == nil && time.Since(begun) < each/4: // quotas.watchers is reached
			ctxio.Sleep(c.ctx, each)
		case err == nil:
			wait.Reset()
		case c.ctx.Err() != nil:
		case isLost(err) && c.finishing.Load():
			return
		case isLost(err):
			c.markLost(err)
		default:
			c.source.logFailure(err)
			ctxio.Sleep(c.ctx, wait.Next(rand.Float64()))
		}
	}
}

// isLost reports whether an error says that the claim has ended.
func isLost(err error) bool { return coded.CodeOf(err) == coded.Conflict || isRefusal(err) }

// markLost ends a claim that the server has ended.
func (c *claim) markLost(why error) {
	c.close(fmt.Errorf("%w: %w", tasks.ErrClaimLost, why))
	if code := coded.CodeOf(why); code == coded.Unauthenticated || code == coded.PermissionDenied {
		c.source.reportRefusal(why)
	}
}

// close ends the claim and removes its files.
func (c *claim) close(cause error) {
	c.closed.Do(func() {
		c.end(cause)
		_ = os.RemoveAll(c.folder)
		_ = os.Remove(filepath.Dir(c.folder))
	})
}

func (c *claim) renew(ctx context.Context, wait time.Duration) error {
	c.mu.Lock()
	p := c.progress
	c.mu.Unlock()
	return c.source.post(ctx, c.path+"/renew", map[string]any{"progress": p, "wait_ms": wait.Milliseconds()}, nil)
}

// Report implements tasks.Claim. At most one request in sendPause tells the server of progress.
func (c *claim) Report(p tasks.Progress) error {
	if err := p.Check(); err != nil {
		return err
	}
	c.mu.Lock()
	c.progress = p
	first := !c.reporting
	c.reporting = true
	c.mu.Unlock()
	if first {
		go c.sendProgress()
	}
	if c.ctx.Err() != nil {
		return tasks.ErrClaimLost
	}
	return nil
}

// sendProgress sends the newest progress until no further progress was reported.
func (c *claim) sendProgress() {
	for {
		c.mu.Lock()
		if c.progress == c.sent || c.ctx.Err() != nil {
			c.reporting = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.flushProgress()
		ctxio.Sleep(c.ctx, sendPause)
	}
}

// flushProgress sends progress that was not sent.
func (c *claim) flushProgress() {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	p, sent := c.progress, c.sent
	c.sent = p
	c.mu.Unlock()
	if p == sent {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, replyTimeout)
	defer cancel()
	if err := c.source.post(ctx, c.path+"/progress", p, nil); err != nil { // the next renewal sends the progress
		c.source.opts.Log.Debug("the progress of a task cannot be sent", "task", c.task.ID, "error", err)
	}
}

// Input implements tasks.Claim. The input is fetched as a whole into a file, and its digest is checked, before the
// task runs.
func (c *claim) Input() (blob.Reader, error) {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(c.folder, "input")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = c.fetch(f)
	if errors.Is(err, tasks.ErrDamaged) { // perhaps on the way
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			if err = f.Truncate(0); err == nil {
				err = c.fetch(f)
			}
		}
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return blob.FileReader(f, c.task.Input.Size), nil
}

// fetch writes the input into a file. A transfer that breaks goes on where the transfer has ended.
func (c *claim) fetch(f *os.File) error {
	sum, at := sha256.New(), int64(0)
	wait := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for at < c.task.Input.Size {
		n, err := c.fetchFrom(f, sum, at)
		at += n
		switch {
		case c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case err == nil && at != c.task.Input.Size: // longer or shorter than the record says
			return c.damaged(at, sum)
		case err == nil:
		case isLost(err):
			c.markLost(err)
			return err
		default:
			if n > 0 {
				wait.Reset()
			}
			c.source.logFailure(err)
			ctxio.Sleep(c.ctx, wait.Next(rand.Float64()))
		}
	}
	if hex.EncodeToString(sum.Sum(nil)) != c.task.Input.SHA256 {
		return c.damaged(at, sum)
	}
	return nil
}

func (c *claim) damaged(at int64, sum hash.Hash) error {
	return fmt.Errorf("%w: %d bytes with the SHA-256 %x, not %d bytes with %s", tasks.ErrDamaged, at, sum.Sum(nil),
		c.task.Input.Size, c.task.Input.SHA256)
}

// fetchFrom appends the input from an offset, and returns the number of bytes.
func (c *claim) fetchFrom(f *os.File, sum hash.Hash, at int64) (int64, error) {
	ctx, watched, stop := withStallTimeout(c.ctx)
	defer stop()
	h := http.Header{}
	if at > 0 {
		h.Set("Range", fmt.Sprintf("bytes=%d-", at))
	}
	resp, err := c.source.opts.Client.Send(ctx, http.MethodGet, c.path+"/input", h, nil, 0)
	if err != nil {
		return 0, stallCause(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if at > 0 && resp.StatusCode != http.StatusPartialContent {
		return 0, coded.Errorf(coded.Unavailable, "", "the server sends no part of an input")
	}
	n, err := io.Copy(io.MultiWriter(f, sum), watched(io.LimitReader(resp.Body, c.task.Input.Size-at+1)))
	return n, stallCause(ctx, err)
}

// Log implements tasks.Claim.
func (c *claim) Log() io.Writer { return c.log }

// Create implements tasks.Claim.
func (c *claim) Create() (blob.Writer, error) {
	if err := context.Cause(c.ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return nil, err
	}
	return blob.CreateFile(c.ctx, c.resultPath())
}

func (c *claim) resultPath() string { return filepath.Join(c.folder, "result") }

// Finish implements tasks.Claim. A transfer of the result that breaks begins again, until the claim is lost.
func (c *claim) Finish(result tasks.File) error {
	return c.sendFinal(func(ctx context.Context) error { return c.sendResult(ctx, result) })
}

// Fail implements tasks.Claim.
func (c *claim) Fail(f tasks.Failure, again bool) error {
	return c.sendFinal(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, replyTimeout)
		defer cancel()
		return c.source.post(ctx, c.path+"/fail",
			map[string]any{"code": f.Code, "message": f.Message, "again": again}, nil)
	})
}

// sendFinal sends the request that ends the claim until the server has answered.
func (c *claim) sendFinal(send func(context.Context) error) error {
	c.finishing.Store(true)
	wait := backoff.Backoff{Min: 100 * time.Millisecond, Max: min(5*time.Second, c.lease/4)}
	for {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		c.flushProgress()
		err := c.log.flush(c.ctx)
		if err == nil {
			err = send(c.ctx)
		}
		switch {
		case err == nil:
			c.close(context.Canceled)
			return nil
		case c.ctx.Err() != nil:
		case isLost(err):
			c.markLost(err)
			return fmt.Errorf("%w: %w", tasks.ErrClaimLost, err)
		default:
			c.source.logFailure(err)
			ctxio.Sleep(c.ctx, wait.Next(rand.Float64()))
		}
	}
}

// sendResult sends the result.
func (c *claim) sendResult(ctx context.Context, result tasks.File) error {
	f, err := os.Open(c.resultPath())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum, err := hex.DecodeString(result.SHA256)
	if err != nil {
		return err
	}
	h := http.Header{"Content-Digest": {"sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":"}}
	for name, value := range map[string]string{"Content-Type": result.Type, headerLength: result.Head} {
		if value != "" {
			h.Set(name, value)
		}
	}
	if result.Name != "" {
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": result.Name}))
	}
	ctx, watched, stop := withStallTimeout(ctx)
	defer stop()
	resp, err := c.source.opts.Client.Send(ctx, http.MethodPut, c.path+"/result", h, watched(f), result.Size)
	if err != nil {
		return stallCause(ctx, err)
	}
	return resp.Body.Close()
}

// headerLength is the header with the length of the JSON in front of binary tensors.
const headerLength = "Inference-Header-Content-Length"

// releaseTime is the time to give a task back when the consumer ends.
const releaseTime = 5 * time.Second

// Release implements tasks.Claim. When the server does not answer, the task is queued again at the end of the lease.
func (c *claim) Release() error {
	c.finishing.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), releaseTime)
	defer cancel()
	wait := backoff.Backoff{Min: 100 * time.Millisecond, Max: time.Second}
	_ = c.log.flush(ctx) // a log without its last lines is no reason to keep the task
	for {
		err := c.source.post(ctx, c.path+"/release", nil, nil)
		switch {
		case err != nil && isLost(err):
			c.markLost(err)
			return tasks.ErrClaimLost
		case err == nil || ctx.Err() != nil:
			c.close(context.Canceled)
			return err
		}
		ctxio.Sleep(ctx, max(client.RetryAfter(err), wait.Next(rand.Float64())))
	}
}
