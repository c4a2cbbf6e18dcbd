package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"millrace/internal/backoff"
	"millrace/internal/ctxio"
	"millrace/stream"
	"millrace/stream/coded"
)

// The parts of an upload.
const (
	uploadPart   = 64 << 20        // most bytes of a request; the server has written a part to the disk when it answers
	uploadStall  = time.Minute     // a request without progress for this time is given up, and the upload continued
	uploadGiveUp = 2 * time.Minute // an upload without progress for this time fails
)

// UploadOptions say who is told of an upload. Zero fields: nobody.
type UploadOptions struct {
	Progress func(sent, total int64) // called by one goroutine at a time
	Broken   func(error)             // the connection is broken, and the upload will continue
}

// UploadTask submits a task with a file as the input, in parts, and continues after a broken connection and after a
// restart of the server. r.Body and r.Size are not used. With r.Key, a later call continues the upload of an earlier
// process. The server compares the SHA-256 of the file.
func (c *Client) UploadTask(ctx context.Context, r TaskRequest, file io.ReadSeeker, o UploadOptions) (t Task,
	err error) {
	if r.Model == "" {
		return t, errNoModel()
	}
	if r.Type == "" {
		r.Type = "application/json"
	}
	if r.Key == "" {
		r.Key = rand.Text() // a repeated request for the upload must not begin a second one
	}
	u := &uploading{Client: c, UploadOptions: o, file: file}
	h := sha256.New()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return t, err
	}
	if u.size, err = io.Copy(h, ctxio.Reader(ctx, file)); err != nil {
		return t, err
	}
	if err := u.retry(ctx, func() error { return u.create(ctx, &r, hex.EncodeToString(h.Sum(nil))) }); err != nil {
		return t, err
	}
	for u.at < u.size {
		lost := false
		err := u.retry(ctx, func() error {
			if lost {
				if err := u.ask(ctx); err != nil || u.at == u.size {
					return err
				}
			}
			lost = true
			return u.send(ctx)
		})
		if err != nil {
			return t, err
		}
	}
	err = u.retry(ctx, func() (err error) {
		t, err = c.Task(ctx, u.id)
		return err
	})
	return t, err
}

// uploading is an upload of UploadTask.
type uploading struct {
	*Client
	UploadOptions
	file     io.ReadSeeker
	size, at int64
	id       string
	moved    time.Time // when the newest byte was sent
}

// retry calls f until f has succeeded, f fails for a reason that stays, or nothing was sent for uploadGiveUp.
func (u *uploading) retry(ctx context.Context, f func() error) error {
	wait := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	for u.moved = time.Now(); ; {
		err := f()
		if err == nil || ctx.Err() != nil || !passes(err) || time.Since(u.moved) > uploadGiveUp {
			return err
		}
		if u.Broken != nil {
			u.Broken(err)
		}
		if !ctxio.Sleep(ctx, max(RetryAfter(err), wait.Next(mathrand.Float64()))) {
			return ctx.Err()
		}
	}
}

// passes reports whether an error may pass by itself.
func passes(err error) bool {
	switch coded.CodeOf(err) {
	case coded.InvalidArgument, coded.Unsupported, coded.NotFound, coded.TooLarge, coded.Unauthenticated,
		coded.PermissionDenied, coded.FlowControl:
		return false
	}
	return true
}

// tusHeader returns the header of each request about an upload.
func tusHeader() http.Header { return http.Header{"Tus-Resumable": {"1.0.0"}} }

// create begins the upload, or finds the upload with the key.
func (u *uploading) create(ctx context.Context, r *TaskRequest, sum string) error {
	var pairs []string
	for name, text := range map[string]string{"sha256": sum, "filetype": r.Type, "header_length": strconv.Itoa(
		r.HeaderLength)} {
		if text != "" && text != "0" {
			pairs = append(pairs, name+" "+base64.StdEncoding.EncodeToString([]byte(text)))
		}
	}
	h := tusHeader()
	h.Set("Upload-Length", strconv.FormatInt(u.size, 10))
	h.Set("Upload-Metadata", strings.Join(pairs, ","))
	h.Set("Idempotency-Key", r.Key)
	reply, err := u.do(ctx, http.MethodPost, u.url(r.query(), "v2", "uploads"), h, nil)
	if err != nil {
		return err
	}
	at, err := url.Parse(reply.header.Get("Location"))
	if err != nil {
		return badReply(err)
	}
	u.id = path.Base(at.Path)
	if n := reply.header.Get("Upload-Length"); n != strconv.FormatInt(u.size, 10) {
		return stream.Errorf(stream.InvalidArgument, "Idempotency-Key",
			"is of the task %s with another input of %s bytes", u.id, n)
	}
	return u.arrived(reply.header)
}

// arrived reads how many bytes the server has.
func (u *uploading) arrived(h http.Header) error {
	n, err := strconv.ParseInt(h.Get("Upload-Offset"), 10, 64)
	if err != nil || n < 0 || n > u.size {
		return stream.Errorf(stream.Internal, "", "the server has answered with the Upload-Offset %.40q",
			h.Get("Upload-Offset"))
	}
	if u.at = n; u.Progress != nil {
		u.Progress(n, u.size)
	}
	return nil
}

// ask asks how many bytes have arrived.
func (u *uploading) ask(ctx context.Context) error {
	reply, err := u.do(ctx, http.MethodGet, u.url(nil, "v2", "uploads", u.id), tusHeader(), nil)
	if err != nil {
		return err
	}
	return u.arrived(reply.header)
}

// send sends the next part.
func (u *uploading) send(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(uploadStall, func() {
		cancel(stream.Errorf(stream.Unavailable, "", "no byte was sent for %v", uploadStall))
	})
	defer stall.Stop()
	if _, err := u.file.Seek(u.at, io.SeekStart); err != nil {
		return stream.Errorf(stream.InvalidArgument, "", "the file cannot be read: %w", err)
	}
	n := min(u.size-u.at, uploadPart)
	body := &sentReader{r: io.LimitReader(u.file, n), sent: func(sent int64) {
		stall.Reset(uploadStall)
		u.moved = time.Now()
		if u.Progress != nil {
			u.Progress(u.at+sent, u.size)
		}
	}}
	h := tusHeader()
	h.Set("Upload-Offset", strconv.FormatInt(u.at, 10))
	h.Set("Content-Type", "application/offset+octet-stream")
	resp, err := u.Send(ctx, http.MethodPatch, "/v2/uploads/"+u.id, h, body, n)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return u.arrived(resp.Header)
}

// sentReader tells how many bytes were read.
type sentReader struct {
	r    io.Reader
	n    int64
	sent func(int64)
}

// Read implements io.Reader.
func (s *sentReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.n += int64(n)
	s.sent(s.n)
	return n, err
}
