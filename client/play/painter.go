package play

import (
	"context"
	"fmt"
	"image"
	"math"
	"sync"
	"time"

	"millrace/client"
	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/stream"
)

const (
	// maxPending and maxPendingBytes bound the frames waiting for their ending and for drawing. At the bound, sending
	// waits until a frame was drawn, so that the overlay has all frames.
	maxPending      = 512
	maxPendingBytes = 64 << 20
	// minWidth is the width below which a picture is enlarged to keep text legible.
	minWidth   = 640
	maxEnlarge = 4
)

// pendingFrame is a sent frame that is not drawn yet.
type pendingFrame struct {
	seq   uint64
	frame []byte
	pts   time.Duration

	ended    bool
	answered bool // ended with a result
	result   overlay.Result
	caption  string // describes the ending
}

// painter draws the results over the frames, in the order of sending, in its own goroutine. Without files painter
// does nothing.
type painter struct {
	video, picture string // files; "" = none
	fps            float64
	aspect         float64 // ratio of width to height of a pixel
	ctx            context.Context

	mu       sync.Mutex
	pending  []*pendingFrame
	bytes    int   // of pending
	finished bool  // finish was called
	err      error // drawing failed

	// wake wakes the drawing goroutine, and drawn wakes add. Both have capacity 1.
	wake, drawn chan struct{}
	done        chan struct{} // closed when the goroutine has ended

	// Used by the drawing goroutine.
	writer    *overlay.Writer
	decoder   codec.Decoder
	rgb       []byte
	canvas    *image.RGBA
	at        time.Duration
	last      overlay.Result // the newest result
	lastSeq   uint64         // the frame of last
	hasLast   bool
	best      *image.RGBA // the picture to write
	bestScore [2]float64  // of best, see scoreOf
}

func newPainter(ctx context.Context, video, picture string, fps, aspect float64) *painter {
	r := &painter{
		video: video, picture: picture, fps: fps, aspect: aspect, ctx: context.WithoutCancel(ctx),
		wake: make(chan struct{}, 1), drawn: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if r.off() {
		close(r.done)
		return r
	}
	go r.run() // ends with finish
	return r
}

// oipTensors converts outputs to the type read by package overlay.
func oipTensors(outputs []stream.Tensor) []oip.Tensor {
	list := make([]oip.Tensor, len(outputs))
	for i, t := range outputs {
		list[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	return list
}

func (r *painter) off() bool { return r.video == "" && r.picture == "" }

// add adds a frame before sending, and first waits while too many frames are pending. add fails when drawing failed
// or ctx has ended. When the stream has ended, add does nothing and returns nil, since sending fails.
func (r *painter) add(ctx context.Context, streamDone <-chan struct{}, seq uint64, frame []byte,
	pts time.Duration) error {
	if r.off() {
		return nil
	}
	for {
		r.mu.Lock()
		if r.err != nil {
			defer r.mu.Unlock()
			return r.err
		}
		if len(r.pending) == 0 || len(r.pending) < maxPending && r.bytes+len(frame) <= maxPendingBytes {
			r.pending = append(r.pending, &pendingFrame{seq: seq, frame: append([]byte(nil), frame...), pts: pts})
			r.bytes += len(frame)
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		select {
		case <-r.drawn:
		case <-r.done:
		case <-streamDone:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ending records the ending of a frame.
func (r *painter) ending(p *client.Reply) {
	if r.off() || p.Partial {
		return
	}
	end := pendingFrame{ended: true}
	switch {
	case p.Dropped != "":
		end.caption = "dropped: " + string(p.Dropped)
	case p.Lost:
		end.caption = "lost"
	case p.Err != nil:
		end.caption = "error: " + string(stream.CodeOf(p.Err))
	default:
		end.answered, end.caption = true, "age "+age(p.Got.Sub(p.Sent))
		var err error
		if end.result, err = overlay.ReadResult(oipTensors(p.Outputs)); err != nil {
			end.caption += "  cannot be drawn: " + err.Error()
		}
	}
	r.mu.Lock()
	for _, s := range r.pending {
		if s.seq == p.Seq {
			s.ended, s.answered, s.result, s.caption = true, end.answered, end.result, end.caption
			break
		}
	}
	r.mu.Unlock()
	signal(r.wake)
}

func age(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// finish draws the remaining frames, also frames without an ending, and completes the files. add must not be called
// after finish.
func (r *painter) finish() error {
	r.mu.Lock()
	r.finished = true
	r.mu.Unlock()
	signal(r.wake)
	<-r.done
	return r.err
}

func (r *painter) run() {
	defer close(r.done)
	err := r.drawAll()
	if r.writer != nil {
		if closeErr := r.writer.Close(); closeErr != nil {
			err = closeErr // has the reason of a write failure
		}
	}
	switch {
	case err != nil || r.picture == "":
	case r.best == nil:
		err = fmt.Errorf("play: no frame was answered, so %s was not written", r.picture)
	default:
		err = overlay.WritePicture(r.picture, r.best)
	}
	r.mu.Lock()
	r.err, r.pending = err, nil
	r.mu.Unlock()
}

// drawAll draws the frames in order, each after its ending.
func (r *painter) drawAll() error {
	for {
		r.mu.Lock()
		var s *pendingFrame
		if len(r.pending) > 0 && (r.pending[0].ended || r.finished) {
			s = r.pending[0]
			r.pending[0] = nil
			r.pending = r.pending[1:]
			r.bytes -= len(s.frame)
		}
		end := r.finished && s == nil
		r.mu.Unlock()
		switch {
		case end:
			return nil
		case s == nil:
			<-r.wake
			continue
		}
		signal(r.drawn)
		if err := r.draw(s); err != nil {
			return err
		}
	}
}

func (r *painter) draw(s *pendingFrame) error {
	caption := fmt.Sprintf("#%d  %s", s.seq, s.caption)
	switch {
	case !s.ended:
		caption = fmt.Sprintf("#%d  lost: the stream ended before its result", s.seq)
		fallthrough
	case !s.answered:
		if s.result = r.last; r.hasLast && !s.result.Empty() {
			caption += fmt.Sprintf("  (as in #%d)", r.lastSeq)
		}
	default:
		r.last, r.lastSeq, r.hasLast = s.result, s.seq, true
	}
	score := scoreOf(&s.result)
	keep := r.picture != "" && s.answered && (r.best == nil || score[0] > r.bestScore[0] ||
		score[0] == r.bestScore[0] && score[1] > r.bestScore[1])
	if r.video == "" && !keep {
		return nil
	}
	if err := r.paint(s.frame, s.result, caption); err != nil {
		return fmt.Errorf("play: frame %d cannot be drawn: %w", s.seq, err)
	}
	if keep {
		r.bestScore = score
		if r.best == nil || r.best.Rect != r.canvas.Rect {
			r.best = image.NewRGBA(r.canvas.Rect)
		}
		copy(r.best.Pix, r.canvas.Pix)
	}
	if r.video == "" {
		return nil
	}
	if r.writer == nil {
		w, err := overlay.NewWriter(r.ctx, r.video, r.canvas.Rect.Dx(), r.canvas.Rect.Dy(), r.fps)
		if err != nil {
			return err
		}
		r.writer, r.at = w, -time.Millisecond
	}
	r.at = max(s.pts, r.at+time.Millisecond) // times may repeat, but must rise in the file
	return r.writer.Write(r.canvas, r.at)
}

// scoreOf returns the number of objects in a result, and the sum of their scores.
func scoreOf(f *overlay.Result) (score [2]float64) {
	score[0] = float64(max(len(f.Boxes), len(f.Poses)))
	for _, b := range f.Boxes {
		if b.Score > 0 { // NaN if the box has none
			score[1] += b.Score
		}
	}
	return score
}

// Paint decodes a picture, upright, and draws a result over the picture. A small picture is enlarged.
func Paint(picture []byte, result overlay.Result) (*image.RGBA, error) {
	r := painter{aspect: 1}
	if err := r.paint(picture, result, ""); err != nil {
		return nil, fmt.Errorf("play: the picture cannot be drawn: %w", err)
	}
	return r.canvas, nil
}

// paint decodes a frame into the canvas, upright, and draws the result over the frame.
func (r *painter) paint(frame []byte, result overlay.Result, caption string) error {
	info, err := codec.Header(frame)
	if err != nil {
		return err
	}
	w, h := info.Upright()
	// The canvas has square pixels: a frame with other pixels is made wider or higher, never smaller.
	wide, high := float64(w)*max(1, r.aspect), float64(h)*max(1, 1/r.aspect)
	enlarge := float64(min(max(1, int(math.Ceil(minWidth/wide))), maxEnlarge))
	target := codec.Target{Width: int(math.Round(wide * enlarge)), Height: int(math.Round(high * enlarge))}
	if n := target.Size(w, h); len(r.rgb) != n {
		r.rgb = make([]byte, n)
	}
	if _, err := r.decoder.DecodeInfo(frame, info, target, r.rgb); err != nil {
		return err
	}
	rect := image.Rect(0, 0, target.Width, target.Height)
	if r.canvas == nil || r.canvas.Rect != rect {
		r.canvas = image.NewRGBA(rect)
	}
	pix := r.canvas.Pix
	for i, j := 0, 0; i < len(r.rgb); i, j = i+3, j+4 {
		pix[j], pix[j+1], pix[j+2], pix[j+3] = r.rgb[i], r.rgb[i+1], r.rgb[i+2], 255
	}
	overlay.Draw(r.canvas, result.Scale(float64(target.Width)/float64(w), float64(target.Height)/float64(h)), caption)
	return nil
}

// overlayFiles returns the files to write for a picture or a video. The overlay of a
// picture is a picture.
func (o *Options) overlayFiles(ofPicture bool) (video, picture string, err error) {
	video, picture = o.Overlay, o.Picture
	isPicture := overlay.CheckPicture(video) == nil
	switch {
	case video == "":
	case ofPicture && picture != "":
		err = stream.Errorf(stream.InvalidArgument, "picture",
			"is for videos: the overlay of a picture is a picture already")
	case ofPicture && !isPicture:
		err = stream.Errorf(stream.InvalidArgument, "overlay",
			"%s does not end in .png or .jpg: the overlay of a picture is a picture", video)
	case ofPicture:
		video, picture = "", video
	case isPicture:
		err = stream.Errorf(stream.InvalidArgument, "overlay",
			"%s does not end in %s: the overlay of a video is a video; picture is one frame of it", video,
			overlay.Extensions)
	default:
		err = overlay.CheckVideo(video)
	}
	if picture != "" && err == nil {
		err = overlay.CheckPicture(picture)
	}
	return video, picture, err
}
