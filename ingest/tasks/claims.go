package tasks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/tasks"
)

// claimsRoot is the path of the claims of consumers on other hosts.
const claimsRoot = "/v2/work/claims"

// claimPath is the path of one claim.
const claimPath = claimsRoot + "/:id/:attempt"

// Bounds of the requests of consumers.
const (
	maxClaimBody = 1 << 20
	maxLogBody   = 256 << 10
	maxModels    = 10000
	maxClaimWait = time.Minute
	maxMessage   = 4 << 10 // bytes of the message of a failure that are kept
)

// confirmTime is the time for the first request about a new claim, at most a lease: without a request, the answer of
// the claim may not have reached the consumer, and the task is queued again at once.
const confirmTime = 10 * time.Second

// The events of claims in the metrics.
const (
	eventClaimed  = "claimed"
	eventFinished = "finished"
	eventFailed   = "failed"
	eventReleased = "released"
	eventRefused  = "refused"
)

// ClaimEvents lists the events of claims in the metrics.
var ClaimEvents = []string{eventClaimed, eventFinished, eventFailed, eventReleased, eventRefused}

// claims serves consumers on other hosts. A claim is named by the task and the attempt, and lives in the record of the
// task alone, so that consumers go on after a restart of the server.
type claims struct {
	*Adapter

	mu          sync.Mutex
	unconfirmed map[claimKey]*time.Timer // claims without a request so far
	events      map[string]uint64
}

// claimKey names a claim.
type claimKey struct {
	id      string
	attempt int
}

func newClaims(a *Adapter) *claims {
	return &claims{Adapter: a, unconfirmed: map[claimKey]*time.Timer{}, events: map[string]uint64{}}
}

func (w *claims) routes(app fiber.Router) {
	app.Post(claimsRoot, w.claim)
	app.Get(claimPath+"/input", w.input)
	app.Put(claimPath+"/result", w.result)
	app.Post(claimPath+"/renew", w.renew)
	app.Post(claimPath+"/progress", w.progress)
	app.Post(claimPath+"/log", w.log)
	app.Post(claimPath+"/fail", w.fail)
	app.Post(claimPath+"/release", w.release)
}

// count counts an event of a claim.
func (w *claims) count(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[event]++
}

// counts returns the number of events by name.
func (w *claims) counts() map[string]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]uint64, len(ClaimEvents))
	for _, name := range ClaimEvents {
		out[name] = w.events[name]
	}
	return out
}

// claimRequest is the body of a request for a task.
type claimRequest struct {
	Consumer string   `json:"consumer"` // for people
	Models   []string `json:"models"`   // that the consumer can run now
	WaitMS   int64    `json:"wait_ms"`  // for a task, at most a minute
}

// claimReply is the answer with a task.
type claimReply struct {
	Task    tasks.Task `json:"task"`
	LeaseMS int64      `json:"lease_ms"` // time without a renewal after which the task is queued again
}

func (r *claimRequest) check() error {
	if err := access.CheckName(r.Consumer); err != nil {
		return stream.Errorf(stream.InvalidArgument, "consumer", "%w", err)
	}
	if len(r.Models) > maxModels {
		return stream.Errorf(stream.InvalidArgument, "models", "has %d names: want at most %d", len(r.Models),
			maxModels)
	}
	return checkWait(r.WaitMS)
}

func checkWait(ms int64) error {
	if ms < 0 || ms > maxClaimWait.Milliseconds() {
		return stream.Errorf(stream.InvalidArgument, "wait_ms", "%d is no time from 0 to %d ms", ms,
			maxClaimWait.Milliseconds())
	}
	return nil
}

// readJSON reads the JSON body of a request.
func (w *claims) readJSON(c *fiber.Ctx, to any) error {
	body, err := w.http.ReadSmall(c, maxClaimBody)
	if err == nil && len(body) > 0 {
		if err := httpd.StrictJSON(body, to); err != nil {
			return stream.Errorf(stream.InvalidArgument, "", "the body is not the JSON of this route: %w", err)
		}
	}
	return err
}

// waitContext returns a context that ends after a time, when the consumer leaves, or when its credentials end. The
// request counts in quotas.watchers until release.
func (w *claims) waitContext(c *fiber.Ctx, by *ingest.Client, wait time.Duration) (ctx context.Context, release func(),
	err error) {
	if err := by.Core().Hold(stream.QuotaWatchers); err != nil {
		return nil, nil, err
	}
	ended, end := context.WithCancelCause(w.http.Context(c, w.ctx))
	ctx, cancel := context.WithTimeout(ended, wait)
	stop := by.OnEnd(end)
	return ctx, func() {
		stop()
		cancel()
		end(nil)
		by.Core().Release(stream.QuotaWatchers)
	}, nil
}

// claimantOf names the credentials of a consumer in the record of a task. The name is never empty, which is the name
// for claims of the server itself.
func claimantOf(by *ingest.Client) string { return cmp.Or(ownerOf(by), "*") }

// claim gives a task to a consumer, or answers 204 after the wait.
func (w *claims) claim(c *fiber.Ctx) error {
	by, err := w.client(c)
	if err != nil {
		return err
	}
	var r claimRequest
	if err := w.readJSON(c, &r); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	if w.ctx.Err() != nil {
		return stream.Errorf(stream.Draining, "", "the server is shutting down: ask again later")
	}
	wait := max(time.Duration(r.WaitMS)*time.Millisecond, time.Millisecond)
	ctx, release, err := w.waitContext(c, by, wait)
	if err != nil {
		return err
	}
	defer release()
	t, err := w.opts.Data.ClaimRemote(ctx, r.Consumer, claimantOf(by), func(model string) bool {
		return slices.Contains(r.Models, model) && by.CheckRights(access.Need{Role: role.Work, Model: model}) == nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		if cause := context.Cause(ctx); stream.CodeOf(cause) == stream.Unauthenticated {
			return cause
		}
		return c.SendStatus(http.StatusNoContent)
	case err != nil:
		return err
	}
	w.count(eventClaimed)
	w.expectRequest(claimKey{t.ID, t.Attempt}, claimantOf(by))
	t.Owner, t.Key, t.Webhook = "", "", nil
	return c.JSON(claimReply{Task: t, LeaseMS: w.opts.Data.Lease().Milliseconds()})
}

// expectRequest queues the task again unless a request about the claim arrives soon.
func (w *claims) expectRequest(k claimKey, by string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unconfirmed[k] = time.AfterFunc(min(confirmTime, w.opts.Data.Lease()), func() {
		if w.confirm(k) {
			w.run("unconfirmed", func() { w.requeue(k, by) })
		}
	})
}

// confirm reports whether the claim had no request before.
func (w *claims) confirm(k claimKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	timer := w.unconfirmed[k]
	if timer == nil {
		return false
	}
	timer.Stop()
	delete(w.unconfirmed, k)
	return true
}

// requeue queues the task of a claim again, as if the attempt had not begun.
func (w *claims) requeue(k claimKey, by string) {
	held, err := w.opts.Data.ResumeClaim(w.ctx, k.id, k.attempt, by)
	if err != nil {
		return
	}
	defer held.Close()
	if err := held.Release(); err == nil {
		w.count(eventReleased)
	}
}

// resume returns the claim of a request.
func (w *claims) resume(c *fiber.Ctx) (by *ingest.Client, held *tasks.StoreClaim, err error) {
	if by, err = w.client(c); err != nil {
		return nil, nil, err
	}
	k, err := keyOf(c)
	if err != nil {
		return nil, nil, err
	}
	w.confirm(k)
	held, err = w.opts.Data.ResumeClaim(c.UserContext(), k.id, k.attempt, claimantOf(by))
	if err != nil {
		return by, nil, w.lostError(err)
	}
	if err := by.CheckRights(access.Need{Role: role.Work, Model: held.Task().Model}); err != nil {
		held.Close()
		return nil, nil, err
	}
	return by, held, nil
}

func keyOf(c *fiber.Ctx) (claimKey, error) {
	n, err := strconv.Atoi(c.Params("attempt"))
	if err != nil || n < 1 {
		return claimKey{}, stream.Errorf(stream.NotFound, "", "%.40q is no number of an attempt", c.Params("attempt"))
	}
	return claimKey{strings.Clone(c.Params("id")), n}, nil
}

// lostError returns the error of a request about a claim that has ended before the request.
func (w *claims) lostError(err error) error {
	if errors.Is(err, tasks.ErrClaimLost) {
		w.count(eventRefused)
		return errClaimEnded
	}
	return err
}

// errClaimEnded is the error for a consumer whose claim has ended.
var errClaimEnded error = stream.Errorf(stream.Conflict, "",
	"the task is no longer this consumer's: it was cancelled, or queued again because the claim was not renewed")

// input sends the input of a claimed task.
func (w *claims) input(c *fiber.Ctx) error {
	by, held, err := w.resume(c)
	if err != nil {
		return err
	}
	defer held.Close()
	r, err := held.Input()
	if err != nil {
		return err
	}
	return SendFile(c, by, r, held.Task().Input)
}

// digestHeader has the SHA-256 of a body (RFC 9530).
const digestHeader = "Content-Digest"

// digestOf returns the SHA-256 in a header, in hexadecimal digits.
func digestOf(c *fiber.Ctx) (string, error) {
	text, ok := strings.CutPrefix(c.Get(digestHeader), "sha-256=:")
	sum, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, ":"))
	if !ok || err != nil || len(sum) != sha256.Size {
		return "", stream.Errorf(stream.InvalidArgument, digestHeader, "is not sha-256=:BASE64: of the body")
	}
	return hex.EncodeToString(sum), nil
}

// result stores the result of a claimed task, and finishes the task.
func (w *claims) result(c *fiber.Ctx) error {
	digest, err := digestOf(c)
	if err != nil {
		return err
	}
	by, held, err := w.resume(c)
	if err != nil {
		if k, _ := keyOf(c); by != nil && w.opts.Data.FinishedBy(k.id, k.attempt, claimantOf(by), digest) {
			return c.SendStatus(http.StatusNoContent) // the first answer was lost
		}
		return err
	}
	defer held.Close()
	f := tasks.File{Type: strings.Clone(c.Get(fiber.HeaderContentType)), Head: strings.Clone(c.Get(headerLength))}
	if text := c.Get(fiber.HeaderContentDisposition); text != "" {
		_, p, err := mime.ParseMediaType(text)
		if err != nil {
			return stream.Errorf(stream.InvalidArgument, fiber.HeaderContentDisposition, "cannot be read: %w", err)
		}
		f.Name = strings.Clone(p["filename"])
	}
	if len(f.Type) > maxText || len(f.Head) > maxText || len(f.Name) > maxText {
		return stream.Errorf(stream.InvalidArgument, "", "a header of the result is longer than %d bytes", maxText)
	}
	out, err := held.Create()
	if err != nil {
		return err
	}
	defer out.Discard()
	sum := sha256.New()
	if _, err := w.http.Upload(c, w.opts.MaxResult, "tasks.max_bytes", io.MultiWriter(out, sum)); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return httpd.WithStatus(http.StatusUnprocessableEntity, stream.Errorf(stream.Unavailable, digestHeader,
			"the result was damaged on the way: the SHA-256 is %s, not %s", got, digest))
	}
	if err := held.WaitLost(endedContext); err != nil { // before the file takes its name
		return w.lostError(err)
	}
	if f.Info, err = out.Commit(); err != nil {
		return err
	}
	if err := held.Finish(f); err != nil {
		return w.lostError(err)
	}
	w.count(eventFinished)
	return c.SendStatus(http.StatusNoContent)
}

// endedContext is a context that has ended.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// renewal is the body of a renewal.
type renewal struct {
	Progress tasks.Progress `json:"progress"`
	WaitMS   int64          `json:"wait_ms"` // for the end of the claim, at most a minute
}

// renew renews a claim at once, and answers when the claim has ended, or after the wait. When the consumer's
// credentials end meanwhile, the task is queued again.
func (w *claims) renew(c *fiber.Ctx) error {
	by, held, err := w.resume(c)
	if err != nil {
		return err
	}
	defer held.Close()
	var r renewal
	if err := w.readJSON(c, &r); err != nil {
		return err
	}
	if err := checkWait(r.WaitMS); err != nil {
		return err
	}
	err = held.Renew()
	if err == nil && r.Progress != (tasks.Progress{}) {
		err = held.Report(r.Progress)
	}
	if err != nil {
		return w.lostError(err)
	}
	if r.WaitMS == 0 {
		return c.SendStatus(http.StatusNoContent)
	}
	ctx, release, err := w.waitContext(c, by, time.Duration(r.WaitMS)*time.Millisecond)
	if err != nil { // the claim is renewed, and quotas.watchers is reached: the consumer renews again later
		return c.SendStatus(http.StatusNoContent)
	}
	defer release()
	if err := held.WaitLost(ctx); errors.Is(err, tasks.ErrClaimLost) {
		return errClaimEnded
	} else if err != nil {
		return err
	}
	if cause := context.Cause(ctx); stream.CodeOf(cause) == stream.Unauthenticated {
		k, _ := keyOf(c)
		w.requeue(k, claimantOf(by))
		return cause
	}
	return c.SendStatus(http.StatusNoContent)
}

// progress shows the progress of a claimed task.
func (w *claims) progress(c *fiber.Ctx) error {
	_, held, err := w.resume(c)
	if err != nil {
		return err
	}
	defer held.Close()
	var p tasks.Progress
	if err := w.readJSON(c, &p); err != nil {
		return err
	}
	if err := held.Report(p); err != nil {
		return w.lostError(err)
	}
	return c.SendStatus(http.StatusNoContent)
}

// offsetHeader has the offset of the first byte of a body in the log.
const offsetHeader = "Upload-Offset"

// log appends to the log of the attempt.
func (w *claims) log(c *fiber.Ctx) error {
	_, held, err := w.resume(c)
	if err != nil {
		return err
	}
	defer held.Close()
	at, err := strconv.ParseInt(c.Get(offsetHeader), 10, 64)
	if err != nil || at < 0 {
		return stream.Errorf(stream.InvalidArgument, offsetHeader, "%.40q is no offset in the log",
			c.Get(offsetHeader))
	}
	body, err := w.http.ReadSmall(c, maxLogBody)
	if err != nil {
		return err
	}
	t := held.Task()
	if err := w.opts.Data.AppendLog(c.UserContext(), t.ID, t.Attempt, at, body); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// failure is the body of a failed attempt.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Again   bool   `json:"again"` // another attempt may succeed
}

// fail ends an attempt without a result.
func (w *claims) fail(c *fiber.Ctx) error {
	_, held, err := w.resume(c)
	if err != nil {
		return err
	}
	defer held.Close()
	var f failure
	if err := w.readJSON(c, &f); err != nil {
		return err
	}
	if f.Code == "" || len(f.Code) > maxText {
		return stream.Errorf(stream.InvalidArgument, "code", "is missing or longer than %d bytes", maxText)
	}
	f.Message = f.Message[:min(len(f.Message), maxMessage)]
	if err := held.Fail(tasks.Failure{Code: f.Code, Message: strings.ToValidUTF8(f.Message, "")}, f.Again); err != nil {
		return w.lostError(err)
	}
	w.count(eventFailed)
	return c.SendStatus(http.StatusNoContent)
}

// release gives the task back to the queue.
func (w *claims) release(c *fiber.Ctx) error {
	_, held, err := w.resume(c)
	if err != nil {
		return err
	}
	defer held.Close()
	if err := held.Release(); err != nil {
		return w.lostError(err)
	}
	w.count(eventReleased)
	return c.SendStatus(http.StatusNoContent)
}
