package tasks

import (
	"cmp"
	"errors"
	"image"
	"os"
	"slices"
	"syscall"
	"time"

	"millrace/ingest"
	"millrace/ingest/sources"
	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/stream"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// annotateMP4 is the value of Task.Annotate for a result in MP4.
const annotateMP4 = "mp4"

// optionAnnotate is the option of a submission, for errors.
const optionAnnotate = "annotate"

// minPictureTime is the shortest time between two pictures: two ticks of the times in a video.
const minPictureTime = time.Second / 45_000

// checkVideoKind refuses a task with an annotated video as the result whose input is no video.
func checkVideoKind(t *tasks.Task) error {
	if t.Annotate == "" || kindOf(t) == kindVideo {
		return nil
	}
	return stream.Errorf(stream.InvalidArgument, optionAnnotate, "is for videos, and the input is of the kind %s: "+
		"leave annotate out, or name the media type of a video, such as video/mp4", kindOf(t))
}

// checkDrawable refuses a model without results that could be drawn over a frame.
func checkDrawable(m *stream.Model) error {
	if !m.Files && slices.ContainsFunc(m.Outputs, func(s stream.TensorSpec) bool { return overlay.Draws(s.Name) }) {
		return nil
	}
	return stream.Errorf(stream.Unsupported, optionAnnotate, "model %s has no output that can be drawn, such as "+
		"boxes, keypoints, mask or scores: leave annotate out", m.Name)
}

// annotated is the annotated video of a task: the frames with the results drawn over them. The goroutine that submits
// frames calls start and keep, the goroutine that writes results calls write.
type annotated struct {
	f       *frameRun
	path    string
	room    func() error // fails when the disk has too little room
	most    int64        // bytes; 0 = no bound
	sandbox bool

	width, height int
	video         *overlay.Writer
	decoder       codec.Decoder
	rgb           []byte
	canvas        *image.RGBA
	last          time.Duration // of the newest picture

	frames map[uint64]stream.Frame // without results so far, by seq; f.mu is held
}

// annotate runs the frames of a task, and writes the annotated video.
func (a *Adapter) annotate(f *frameRun, out blob.Writer, feed func(*frameRun) error) error {
	t := f.claim.Task()
	err := checkVideoKind(&t) // again: the record may be from an archive
	if err == nil {
		err = checkDrawable(f.stream.Model())
	}
	if err != nil {
		f.stream.Close(stream.ByClient)
		return err
	}
	return out.Fill(func(path string, room func() error) error {
		v := &annotated{f: f, path: path, room: room, most: a.opts.MaxResult, sandbox: a.opts.Media.Sandbox,
			last: -minPictureTime, frames: map[uint64]stream.Frame{}}
		f.annotated = v
		defer v.release()
		if err := f.run(feed); err != nil {
			return err
		}
		return v.failure(v.video.Close())
	})
}

// maxAnnotatedPixels bounds the pictures of an annotated video: the encoder takes about 80 bytes of memory a pixel,
// while a client sends a large picture in few bytes.
const maxAnnotatedPixels = 4096 * 2304

// start starts the encoder.
func (v *annotated) start(i sources.Info) (err error) {
	if n := i.Width * i.Height; n > maxAnnotatedPixels {
		return stream.Errorf(stream.InvalidArgument, optionAnnotate, "the pictures have %dx%d, %d pixels, and an "+
			"annotated video has at most %d: scale the video, or leave annotate out", i.Width, i.Height, n,
			maxAnnotatedPixels)
	}
	v.width, v.height = i.Width, i.Height
	v.video, err = overlay.NewMP4(v.f.ctx, v.path, overlay.Options{Width: i.Width, Height: i.Height, FPS: i.FPS,
		PixelAspect: i.PixelAspect, Sandbox: v.sandbox})
	if err != nil {
		return v.failure(err)
	}
	v.canvas = image.NewRGBA(image.Rect(0, 0, i.Width, i.Height))
	return nil
}

// keep keeps a frame for its result. f.mu is held.
func (v *annotated) keep(fr stream.Frame) {
	if fr.Lease != nil {
		fr.Lease.Retain()
	}
	v.frames[fr.Seq] = fr
}

// release ends the encoder, and releases frames without results.
func (v *annotated) release() {
	if v.video != nil {
		v.video.Cancel()
	}
	for _, fr := range v.frames {
		fr.Lease.Release()
	}
}

// write adds the picture of a result to the video.
func (v *annotated) write(r *stream.Result) error {
	if r.Partial {
		return nil
	}
	v.f.mu.Lock()
	fr := v.frames[r.Seq]
	delete(v.frames, r.Seq)
	v.f.mu.Unlock()
	defer fr.Lease.Release()
	if err := v.draw(&fr, r); err != nil {
		return err
	}
	v.last = max(time.Duration(r.CaptureUS)*time.Microsecond, v.last+minPictureTime)
	if err := v.video.Write(v.canvas, v.last); err != nil {
		if why := v.failure(v.video.Close()); why != nil { // has the reason
			return why
		}
		return err
	}
	if v.most > 0 {
		if info, err := os.Stat(v.path); err == nil && info.Size() > v.most {
			return stream.Errorf(stream.TooLarge, optionAnnotate,
				"the video has more than the %d bytes that tasks.max_bytes allows", v.most)
		}
	}
	return v.room()
}

// draw draws a result over its frame. A frame without pixels, as when the memory for frames was exhausted, shows the
// frame before.
func (v *annotated) draw(fr *stream.Frame, r *stream.Result) error {
	if fr.Lease != nil {
		whole := codec.Target{Width: v.width, Height: v.height}
		n := whole.Size(fr.Width, fr.Height)
		v.rgb = slices.Grow(v.rgb[:0], n)[:n]
		if _, err := v.decoder.Convert(fr.Payload, codec.NV12, fr.Width, fr.Height, whole, v.rgb); err != nil {
			return err
		}
		for i, o := 0, 0; i != len(v.rgb); i, o = i+3, o+4 {
			s, d := v.rgb[i:i+3:i+3], v.canvas.Pix[o:o+4:o+4]
			d[0], d[1], d[2], d[3] = s[0], s[1], s[2], 255
		}
	}
	failed := r.Err
	if r.Outcome == stream.Dropped {
		failed = ingest.DropError(r.Reason)
	}
	if r.Outcome != stream.Answered {
		overlay.Draw(v.canvas, overlay.Result{}, "no result: "+string(stream.CodeOf(failed)))
		return nil
	}
	outputs := make([]oip.Tensor, len(r.Outputs))
	for i, t := range r.Outputs {
		outputs[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	result, err := overlay.ReadResult(outputs)
	if err != nil {
		return stream.Errorf(stream.Unsupported, optionAnnotate, "a result of model %s cannot be drawn: %w",
			v.f.claim.Task().Model, err)
	}
	width, height := cmp.Or(r.Width, v.width), cmp.Or(r.Height, v.height)
	overlay.Draw(v.canvas, result.Scale(float64(v.width)/float64(width), float64(v.height)/float64(height)), "")
	return nil
}

// failure returns the error of the encoder for the client; nil for nil.
func (v *annotated) failure(err error) error {
	switch {
	case err == nil || v.f.ctx.Err() != nil || errors.Is(err, syscall.ENOSPC):
		return err
	case errors.Is(err, overlay.ErrNoEncoder):
		return stream.Errorf(stream.Unsupported, optionAnnotate, "%w", err)
	}
	return stream.Errorf(stream.Internal, optionAnnotate, "%w", err)
}
