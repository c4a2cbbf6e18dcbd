package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"millrace/ingest"
	"millrace/ingest/sources"
	"millrace/internal/video"
	"millrace/stream"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// addressType is the media type of an input that is the address of a video.
const addressType = "text/uri-list"

// maxVideoAddress is the longest address of a video.
const maxVideoAddress = 4096

// Media says how tasks read videos and pictures.
type Media struct {
	ingest.Limits
	Hardware     *video.Hardware // decodes videos; nil = software
	Sandbox      bool            // confines ffmpeg
	AllowPrivate bool            // videos may have private addresses (sources.allow_private)
}

// runVideo runs a task whose input is a video, or the address of a video: each frame of the video becomes a request.
func (a *Adapter) runVideo(c tasks.Claim, in blob.Reader, trace stream.TraceContext) (tasks.File, error) {
	return a.runFrames(c, trace, "frames", "task", func(f *frameRun) error {
		address, env, err := a.videoOf(c, in)
		if err != nil {
			return err
		}
		if f.annotated == nil { // otherwise frames keep the size of the video
			env.Needs = []video.TargetSize{sources.NeedOf(f.stream.Model())}
		}
		return playVideo(f, address, env)
	})
}

// videoOf returns the address of the video of a task, and how the address is opened.
func (a *Adapter) videoOf(c tasks.Claim, in blob.Reader) (address string, env sources.Env, err error) {
	m := &a.opts.Media
	env = sources.Env{MaxPixels: m.MaxPixels, Memory: a.gate.Memory(), Hardware: m.Hardware, Sandbox: m.Sandbox,
		OneThread: func() bool { return true }}
	if t := c.Task(); mediaType(t.Input.Type) == addressType {
		if !m.AllowPrivate {
			env.Allow = sources.Public
		}
		address, err = videoAddress(in)
		return address, env, err
	}
	env.Upload = true
	path, err := pathOf(c, in)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return "file:" + path, env, err
}

// pathOf returns the path of the file of a stored input, whose bytes are compared with the SHA-256.
func pathOf(c tasks.Claim, in blob.Reader) (string, error) {
	switch f := in.(type) {
	case interface {
		Path(context.Context, blob.Info) (string, error)
	}:
		return f.Path(c.Context(), c.Task().Input.Info)
	case interface{ Name() string }:
		return f.Name(), nil
	}
	return "", stream.Errorf(stream.Internal, "input", "the stored input has no path that ffmpeg could read")
}

// videoAddress reads the input of a task that is the address of a video.
func videoAddress(in io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxVideoAddress+1))
	if err != nil {
		return "", err
	}
	address := strings.TrimSpace(string(b))
	if len(b) > maxVideoAddress || strings.ContainsAny(address, "\r\n") {
		return "", stream.Errorf(stream.InvalidArgument, "input", "is not a single address of at most %d bytes",
			maxVideoAddress)
	}
	if err := sources.Check("input", address); err != nil {
		return "", err
	}
	if scheme, _, _ := sources.Classify(address); scheme != video.SchemeHTTP && scheme != video.SchemeHTTPS {
		return "", stream.Errorf(stream.Unsupported, "input", "is an address of %s, whose video may have no end: "+
			"want http or https", scheme)
	}
	return address, nil
}

// playVideo submits the frames of a video.
func playVideo(f *frameRun, address string, env sources.Env) error {
	r, err := sources.Open(f.ctx, new(sources.Video), address, env)
	if err != nil {
		return videoError(f, env.Upload, err)
	}
	defer func() { _ = r.Close() }()
	info := r.Info()
	if !info.Ends {
		return stream.Errorf(stream.Unsupported, "input", "the video at the address has no end: "+
			"open a server stream for a live video")
	}
	f.setTotal(info.Frames)
	if f.annotated != nil {
		if err := f.annotated.start(info); err != nil {
			return err
		}
	}
	for {
		fr, err := r.Next()
		var unreadable *sources.Unreadable
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, &unreadable):
			err = unreadable.Err
		case err != nil:
			return videoError(f, env.Upload, err)
		case fr.Lease == nil:
			err = ingest.DropError(stream.Memory)
		}
		if err := f.submit(fr, "", err); err != nil {
			return err
		}
	}
}

// videoError returns the error of a video for the client: without the address or the path, and with a code after
// which a damaged upload is not read again. The log of the task gets the messages of the decoder.
func videoError(f *frameRun, upload bool, err error) error {
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	var v *video.Error
	if !errors.As(err, &v) {
		return err
	}
	if v.Output != "" {
		_, _ = fmt.Fprintln(f.claim.Log(), v.Output)
	}
	code := stream.CodeOf(err)
	if upload && (v.Kind == video.EndedEarly || v.Kind == video.NotFound) {
		code = stream.InvalidArgument
	}
	return stream.Errorf(code, "input", "the video cannot be read: %s", v.Problem())
}
