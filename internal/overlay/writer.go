package overlay

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"millrace/internal/child"
	"millrace/internal/video"
)

const (
	// maxSide bounds each side of a video.
	maxSide = 16384
	// finishTimeout bounds the time from the last picture until ffmpeg has ended.
	finishTimeout = time.Minute
	stopGrace     = time.Second
)

// encodings are ffmpeg's arguments by the file's extension. All allow any size: where sides must be even, the picture
// is padded.
var encodings = map[string]string{
	".mp4": "-vf settb=1/90000,pad=ceil(iw/2)*2:ceil(ih/2)*2 -c:v libx264 -preset veryfast -crf 20 -pix_fmt " +
		"yuv420p -movflags +faststart -f mp4",
	".mkv": "-vf settb=1/90000,pad=ceil(iw/2)*2:ceil(ih/2)*2 -c:v libx264 -preset veryfast -crf 20 -pix_fmt " +
		"yuv420p -f matroska",
	".webm": "-vf settb=1/90000,pad=ceil(iw/2)*2:ceil(ih/2)*2 -c:v libvpx -deadline realtime -cpu-used 6 -crf 10 " +
		"-b:v 4M -pix_fmt yuv420p -f webm",
	".gif": "-vf settb=1/100,split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=none -f gif",
}

// Extensions are the file extensions accepted by NewWriter.
const Extensions = ".mp4, .mkv, .webm or .gif"

// CheckVideo returns an error when NewWriter cannot write a file of this name.
func CheckVideo(file string) error {
	if encodings[strings.ToLower(filepath.Ext(file))] == "" {
		return fmt.Errorf("overlay: %s: want a name that ends in %s", file, Extensions)
	}
	return nil
}

// Writer writes pictures as a video with a child ffmpeg. Its methods are for one goroutine at a time.
type Writer struct {
	file   string // the name of the complete video
	part   string // the name until then
	width  int
	height int
	ctx    context.Context
	ffmpeg *child.Process
	head   []byte
	last   time.Duration
	wrote  bool

	once sync.Once
	err  error
}

// NewWriter starts a video of width x height pixels. The file's extension selects the encoding: H.264 for .mp4 and
// .mkv, VP8 for .webm, or .gif. fps is the nominal frame rate (0 = 25); each picture has its own time. An existing
// file is replaced once the video is complete; an incomplete video is removed.
//
// When ctx ends, the video fails. The caller must call Close.
func NewWriter(ctx context.Context, file string, width, height int, fps float64) (*Writer, error) {
	return newWriter(ctx, "ffmpeg", file, width, height, fps)
}

func newWriter(ctx context.Context, program, file string, width, height int, fps float64) (*Writer, error) {
	if err := CheckVideo(file); err != nil {
		return nil, err
	}
	if width < 1 || height < 1 || width > maxSide || height > maxSide {
		return nil, fmt.Errorf("overlay: a video of %dx%d: want sides of 1 to %d pixels", width, height, maxSide)
	}
	if !(fps > 0 && fps <= 1000) {
		fps = 25
	}
	// In the same folder, for the rename, and under a unique name, so that two writers do not share a file.
	f, err := os.CreateTemp(filepath.Dir(file), ".part-*"+filepath.Ext(file))
	if err != nil {
		return nil, fmt.Errorf("overlay: %s cannot be written: %w", file, err)
	}
	w := &Writer{file: file, part: f.Name(), width: width, height: height, ctx: ctx}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		_ = os.Remove(w.part)
		return nil, fmt.Errorf("overlay: %s cannot be written: %w", file, err)
	}
	args := []string{"-hide_banner", "-nostats", "-loglevel", "error", "-y", "-f", "matroska", "-i", "pipe:0",
		"-vsync", "passthrough", "-enc_time_base", "-1", "-an"}
	args = append(args, strings.Fields(encodings[strings.ToLower(filepath.Ext(file))])...)
	w.ffmpeg, err = child.Start(ctx, child.Spec{
		Path: program, Args: append(args, "file:"+w.part), Stdin: true, Grace: stopGrace,
		Env: video.Environment(),
	})
	if err != nil {
		_ = os.Remove(w.part)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("overlay: %s writes the video, and is not installed or not in PATH: apt-get "+
				"install ffmpeg", program)
		}
		return nil, fmt.Errorf("overlay: %w", err)
	}
	w.head = matroskaHeader(width, height, time.Duration(float64(time.Second)/fps))
	return w, nil
}

// Write adds a picture of the video's size, at its time from the beginning. Times must rise. Write waits for ffmpeg,
// and fails when ffmpeg has failed or ctx has ended; Close then returns the reason. The caller may reuse img
// afterwards.
func (w *Writer) Write(img *image.RGBA, at time.Duration) error {
	if img.Rect.Dx() != w.width || img.Rect.Dy() != w.height || img.Stride != 4*w.width {
		return fmt.Errorf("overlay: a picture of %dx%d for a video of %dx%d", img.Rect.Dx(), img.Rect.Dy(), w.width,
			w.height)
	}
	if at = max(at, 0).Truncate(time.Microsecond); w.wrote && at <= w.last {
		return fmt.Errorf("overlay: a picture at %v after one at %v: times must rise", at, w.last)
	}
	pix := img.Pix[:4*w.width*w.height]
	w.head = appendPicture(w.head, at, len(pix))
	w.last, w.wrote = at, true
	_, err := w.ffmpeg.Stdin.Write(w.head)
	w.head = w.head[:0]
	if err == nil {
		_, err = w.ffmpeg.Stdin.Write(pix)
	}
	if err != nil {
		return fmt.Errorf("overlay: %s: ffmpeg accepts no more pictures: %w", w.file, err)
	}
	return nil
}

// Close completes the video, renames the file to its final name, and waits for ffmpeg's exit. The error has ffmpeg's
// message. Close may be called again.
func (w *Writer) Close() error {
	w.once.Do(func() { w.err = w.finish(true) })
	return w.err
}

// Cancel ends ffmpeg and leaves no file, unless Close was called before.
func (w *Writer) Cancel() {
	w.once.Do(func() { w.err = w.finish(false) })
}

func (w *Writer) finish(keep bool) error {
	defer func() { _ = os.Remove(w.part) }() // does nothing after the rename
	if keep && !w.wrote {
		keep = false
	}
	if !keep {
		_ = w.ffmpeg.Stop(0)
		return fmt.Errorf("overlay: %s: no picture was written", w.file)
	}
	_ = w.ffmpeg.Stdin.Close() // tells ffmpeg that there are no more pictures
	t := time.NewTimer(finishTimeout)
	defer t.Stop()
	select {
	case <-w.ffmpeg.Done():
	case <-t.C:
	}
	err := w.ffmpeg.Stop(stopGrace)
	if w.ctx.Err() != nil {
		return fmt.Errorf("overlay: %s was not finished: %w", w.file, context.Cause(w.ctx))
	}
	if err == nil {
		err = os.Rename(w.part, w.file)
	}
	if err != nil {
		return fmt.Errorf("overlay: %s cannot be written: %w", w.file, err)
	}
	return nil
}
