package play

import (
	"context"
	"errors"
	"fmt"
	"image"
	"sync"
	"time"

	"millrace/client"
	"millrace/internal/codec"
	"millrace/internal/oip"
	"millrace/internal/overlay"
	"millrace/stream"
)

const (
	// maxHeld and maxHeldBytes bound the frames that wait for their ending and to be drawn. Past them no frame is
	// sent until one has been written: the sending slows down, and nothing is missing in the overlay.
	maxHeld      = 512
	maxHeldBytes = 64 << 20
	// readable is the width below which a picture is enlarged, so that what is written on it can be read.
	readable = 640
	maxGrow  = 4
)

// heldFrame is a frame that was sent, kept as it was sent until it is drawn.
type heldFrame struct {
	seq   uint64
	frame []byte
	pts   time.Duration

	ended  bool
	answer bool // it is a result
	found  overlay.Result
	said   string // of its ending, in the caption
}

// recorder draws the endings over the frames, in the order of sending, in a
// goroutine of its own. Without files it does nothing.
type recorder struct {
	video, still string // files; "" = none
	fps          float64
	ctx          context.Context

	mu    sync.Mutex
	held  []*heldFrame
	bytes int
	over  bool  // nothing is sent any more
	err   error // the drawing has failed

	wake, room chan struct{} // one slot each
	done       chan struct{} // the drawing has ended

	// Of the drawing goroutine.
	writer  *overlay.Writer
	decoder codec.Decoder
	rgb     []byte
	canvas  *image.RGBA
	at      time.Duration
	last    overlay.Result // of the newest result, and its frame
	lastSeq uint64
	any     bool
	best    *image.RGBA // the picture to keep
	rank    [2]float64  // of best: things found, sum of their scores
}

func newRecorder(ctx context.Context, video, still string, fps float64) *recorder {
	r := &recorder{
		video: video, still: still, fps: fps, ctx: context.WithoutCancel(ctx),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if r.off() {
		close(r.done)
		return r
	}
	go r.run() // ends with finish
	return r
}

// drawable are outputs as overlay reads them.
func drawable(outputs []stream.Tensor) []oip.Tensor {
	list := make([]oip.Tensor, len(outputs))
	for i, t := range outputs {
		list[i] = oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	return list
}

func (r *recorder) off() bool { return r.video == "" && r.still == "" }

// hold takes a frame that is about to be sent, when there is room for it. It
// fails when the drawing has failed or ctx has ended. When the stream has, it
// takes nothing: sending fails.
func (r *recorder) hold(ctx context.Context, gone <-chan struct{}, seq uint64, frame []byte, pts time.Duration) error {
	if r.off() {
		return nil
	}
	for {
		r.mu.Lock()
		if r.err != nil {
			defer r.mu.Unlock()
			return r.err
		}
		if len(r.held) == 0 || len(r.held) < maxHeld && r.bytes+len(frame) <= maxHeldBytes {
			r.held = append(r.held, &heldFrame{seq: seq, frame: append([]byte(nil), frame...), pts: pts})
			r.bytes += len(frame)
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		select {
		case <-r.room:
		case <-r.done:
		case <-gone:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ending notes what became of a frame.
func (r *recorder) ending(p *client.Reply) {
	if r.off() || p.Partial {
		return
	}
	end := heldFrame{ended: true}
	switch {
	case p.Dropped != "":
		end.said = "dropped: " + string(p.Dropped)
	case p.Lost:
		end.said = "lost"
	case p.Err != nil:
		end.said = "error: " + string(stream.CodeOf(p.Err))
	default:
		end.answer, end.said = true, "age "+age(p.Got.Sub(p.Sent))
		var err error
		if end.found, err = overlay.ReadResult(drawable(p.Outputs)); err != nil {
			end.said += "  cannot be drawn: " + err.Error()
		}
	}
	r.mu.Lock()
	for _, s := range r.held {
		if s.seq == p.Seq {
			s.ended, s.answer, s.found, s.said = true, end.answer, end.found, end.said
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

// finish draws what is left, frames without an ending too, and puts the files in
// place. No hold may follow.
func (r *recorder) finish() error {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	signal(r.wake)
	<-r.done
	return r.err
}

func (r *recorder) run() {
	defer close(r.done)
	err := r.drawAll()
	if r.writer != nil {
		if closed := r.writer.Close(); closed != nil {
			err = closed // it knows why pictures were not taken
		}
	}
	switch {
	case err != nil || r.still == "":
	case r.best == nil:
		err = fmt.Errorf("play: no frame was answered, so there is nothing to draw for %s", r.still)
	default:
		err = overlay.WritePicture(r.still, r.best)
	}
	r.mu.Lock()
	r.err, r.held = err, nil
	r.mu.Unlock()
}

// drawAll draws the frames one after the other, each when it has ended.
func (r *recorder) drawAll() error {
	for {
		r.mu.Lock()
		var s *heldFrame
		if len(r.held) > 0 && (r.held[0].ended || r.over) {
			s = r.held[0]
			r.held[0] = nil
			r.held = r.held[1:]
			r.bytes -= len(s.frame)
		}
		over := r.over && s == nil
		r.mu.Unlock()
		switch {
		case over:
			return nil
		case s == nil:
			<-r.wake
			continue
		}
		signal(r.room)
		if err := r.draw(s); err != nil {
			return err
		}
	}
}

func (r *recorder) draw(s *heldFrame) error {
	caption := fmt.Sprintf("#%d  %s", s.seq, s.said)
	switch {
	case !s.ended:
		caption = fmt.Sprintf("#%d  lost: the stream ended before its result", s.seq)
		fallthrough
	case !s.answer:
		if s.found = r.last; r.any && !s.found.Empty() {
			caption += fmt.Sprintf("  (as in #%d)", r.lastSeq)
		}
	default:
		r.last, r.lastSeq, r.any = s.found, s.seq, true
	}
	rank := rankOf(&s.found)
	keep := r.still != "" && s.answer && (r.best == nil || rank[0] > r.rank[0] || rank[0] == r.rank[0] && rank[1] > r.rank[1])
	if r.video == "" && !keep {
		return nil
	}
	if err := r.paint(s, caption); err != nil {
		return err
	}
	if keep {
		r.rank = rank
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
	r.at = max(s.pts, r.at+time.Millisecond) // some videos repeat a time
	return r.writer.Write(r.canvas, r.at)
}

// rankOf says how much a picture shows.
func rankOf(f *overlay.Result) (rank [2]float64) {
	rank[0] = float64(max(len(f.Boxes), len(f.Poses)))
	for _, b := range f.Boxes {
		if b.Score > 0 { // not so when it has none
			rank[1] += b.Score
		}
	}
	return rank
}

// paint decodes a frame into the canvas, upright, and draws over it.
func (r *recorder) paint(s *heldFrame, caption string) error {
	info, err := codec.Header(s.frame)
	if err != nil {
		return fmt.Errorf("play: frame %d cannot be drawn: %w", s.seq, err)
	}
	w, h := info.Upright()
	grow := min(max(1, (readable+w-1)/w), maxGrow)
	target := codec.Target{Width: w * grow, Height: h * grow}
	if n := target.Size(w, h); len(r.rgb) != n {
		r.rgb = make([]byte, n)
	}
	if _, err := r.decoder.DecodeInfo(s.frame, info, target, r.rgb); err != nil {
		return fmt.Errorf("play: frame %d cannot be drawn: %w", s.seq, err)
	}
	rect := image.Rect(0, 0, target.Width, target.Height)
	if r.canvas == nil || r.canvas.Rect != rect {
		r.canvas = image.NewRGBA(rect)
	}
	pix := r.canvas.Pix
	for i, j := 0, 0; i < len(r.rgb); i, j = i+3, j+4 {
		pix[j], pix[j+1], pix[j+2], pix[j+3] = r.rgb[i], r.rgb[i+1], r.rgb[i+2], 255
	}
	overlay.Draw(r.canvas, s.found.Scale(float64(grow), float64(grow)), caption)
	return nil
}

// recording sorts the wanted files by what the source is.
func (o *Options) recording(picture bool) (video, still string, err error) {
	video, still = o.Overlay, o.Picture
	isPicture := overlay.CheckPicture(video) == nil
	switch {
	case video == "":
	case picture && still != "":
		err = errors.New("play: the overlay of a picture is a picture: name one file, not two")
	case picture && !isPicture:
		err = fmt.Errorf("play: the overlay of a picture is a picture: %s does not end in .png or .jpg", video)
	case picture:
		video, still = "", video
	case isPicture:
		err = fmt.Errorf("play: the overlay of a video is a video: %s does not end in %s; for one picture of it set Picture (--picture)", video, overlay.Extensions)
	default:
		err = overlay.CheckVideo(video)
	}
	if still != "" && err == nil {
		err = overlay.CheckPicture(still)
	}
	return video, still, err
}
