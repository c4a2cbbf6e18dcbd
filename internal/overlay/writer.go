package overlay

import (
	"cmp"
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
	"syscall"
	"time"

	"millrace/internal/child"
	"millrace/internal/video"
)

const (
	// maxSide bounds each side of a video.
	maxSide = 16384
	// finishTimeout is the longest time without progress of ffmpeg after the last picture.
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

// serverFilters and serverArgs are ffmpeg's arguments for NewMP4. The colours are BT.709, and say so.
const (
	serverFilters = "settb=1/90000,setsar=%g:max=1000,pad=ceil(iw/2)*2:ceil(ih/2)*2," +
		"scale=out_color_matrix=bt709:out_range=tv,format=yuv420p"
	serverArgs = "-filter_threads 1 -c:v libx264 -preset veryfast -crf 20 -threads 1 -colorspace bt709 " +
		"-color_range tv -map_metadata -1 -movflags +faststart -f mp4"
)

// Bounds of the ffmpeg of NewMP4. Measured at 3840x2160 and 7680x4320: 60 MiB, and 80 bytes a pixel.
const (
	serverSpace         = 1 << 30 // address space without pictures, mostly of libraries
	serverSpacePerPixel = 192
	serverFiles         = 64
)

// ErrNoEncoder is wrapped by the error of a video whose encoder ffmpeg does not have.
var ErrNoEncoder = errors.New("ffmpeg has no such encoder: install an ffmpeg with libx264")

// Options describe the video of NewMP4.
type Options struct {
	Width, Height int
	FPS           float64 // nominal; 0 = 25
	PixelAspect   float64 // width of a pixel by its height; 0 = 1
	Sandbox       bool    // ffmpeg reaches only the video, and no network; see child.SandboxError
}

// Writer writes pictures as a video with a child ffmpeg. Its methods are for one goroutine at a time.
type Writer struct {
	name   string // for errors
	file   string // the name of the complete video; "" = path
	path   string // the name until then
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
	w := &Writer{name: file, file: file, width: width, height: height, ctx: ctx}
	if err := w.checkSize(); err != nil {
		return nil, err
	}
	// In the same folder, for the rename, and under a unique name, so that two writers do not share a file.
	f, err := os.CreateTemp(filepath.Dir(file), ".part-*"+filepath.Ext(file))
	if err != nil {
		return nil, fmt.Errorf("overlay: %s cannot be written: %w", file, err)
	}
	w.path = f.Name()
	err = errors.Join(f.Chmod(0o644), f.Close())
	if err != nil {
		err = fmt.Errorf("overlay: %s cannot be written: %w", file, err)
	} else {
		err = w.start(child.Spec{Path: program, Args: strings.Fields(encodings[strings.ToLower(filepath.Ext(file))])},
			fps)
	}
	if err != nil {
		_ = os.Remove(w.path)
		return nil, err
	}
	return w, nil
}

// NewMP4 starts a video of H.264 in MP4 as NewWriter does, for a server: the video replaces the contents of an existing
// file of the caller, who removes the file after an error, and no error names the file. ffmpeg has one thread, little
// priority and bounded memory.
func NewMP4(ctx context.Context, file string, o Options) (*Writer, error) {
	w := &Writer{name: "the video", path: file, width: o.Width, height: o.Height, ctx: ctx}
	if err := w.checkSize(); err != nil {
		return nil, err
	}
	const program = "ffmpeg"
	spec := child.Spec{Path: program, Limits: child.Limits{Files: serverFiles, Nice: video.ClientNice,
		AddressSpace: serverSpace + serverSpacePerPixel*uint64(o.Width)*uint64(o.Height)}}
	if o.Sandbox {
		spec.Sandbox = video.NewSandbox(program)
		spec.Sandbox.Write = []string{file}
	}
	spec.Args = append([]string{"-vf", fmt.Sprintf(serverFilters, cmp.Or(o.PixelAspect, 1))},
		strings.Fields(serverArgs)...)
	if err := w.start(spec, o.FPS); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Writer) checkSize() error {
	if w.width < 1 || w.height < 1 || w.width > maxSide || w.height > maxSide {
		return fmt.Errorf("overlay: a video of %dx%d: want sides of 1 to %d pixels", w.width, w.height, maxSide)
	}
	return nil
}

// start starts ffmpeg, with the arguments of spec for the output.
func (w *Writer) start(spec child.Spec, fps float64) (err error) {
	if !(fps > 0 && fps <= 1000) {
		fps = 25
	}
	// The header says all about the pictures: ffmpeg keeps none of them in memory to find out.
	args := strings.Fields("-hide_banner -nostats -loglevel error -y -threads 1 -probesize 32 -analyzeduration 0 " +
		"-fpsprobesize 0 -f matroska -i pipe:0 -fps_mode passthrough -enc_time_base -1 -an")
	spec.Args = append(append(args, spec.Args...), "file:"+w.path)
	spec.Stdin, spec.Grace, spec.Env = true, stopGrace, video.Environment()
	if w.ffmpeg, err = child.Start(w.ctx, spec); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("overlay: %s writes the video, and is not installed or not in PATH: apt-get install "+
				"ffmpeg", spec.Path)
		}
		return fmt.Errorf("overlay: %w", err)
	}
	w.head = matroskaHeader(w.width, w.height, time.Duration(float64(time.Second)/fps))
	return nil
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
		return fmt.Errorf("overlay: %s: ffmpeg accepts no more pictures: %w", w.name, err)
	}
	return nil
}

// Close completes the video, renames the file to its final name, and waits for ffmpeg's exit. The error has ffmpeg's
// message. Close may be called again.
func (w *Writer) Close() error {
	w.once.Do(func() { w.err = w.finish(true) })
	return w.err
}

// Cancel ends ffmpeg and leaves no file of NewWriter, unless Close was called before.
func (w *Writer) Cancel() {
	w.once.Do(func() { w.err = w.finish(false) })
}

func (w *Writer) finish(keep bool) error {
	if w.file != "" {
		defer func() { _ = os.Remove(w.path) }() // does nothing after the rename
	}
	if keep && !w.wrote {
		keep = false
	}
	if !keep {
		_ = w.ffmpeg.Stop(0)
		return fmt.Errorf("overlay: %s: no picture was written", w.name)
	}
	_ = w.ffmpeg.Stdin.Close() // tells ffmpeg that there are no more pictures
	w.waitForExit()
	err := w.ffmpeg.Stop(stopGrace)
	switch {
	case w.ctx.Err() != nil:
		return fmt.Errorf("overlay: %s was not finished: %w", w.name, context.Cause(w.ctx))
	case err != nil:
		return w.failure(err)
	case w.file != "":
		err = os.Rename(w.path, w.file)
	}
	if err != nil {
		return fmt.Errorf("overlay: %s cannot be written: %w", w.name, err)
	}
	return nil
}

// waitForExit waits until ffmpeg has ended, or has made no progress for the time finishTimeout.
func (w *Writer) waitForExit() {
	each := time.NewTicker(finishTimeout)
	defer each.Stop()
	for before := time.Duration(-1); ; {
		select {
		case <-w.ffmpeg.Done():
			return
		case <-each.C:
		}
		used := w.ffmpeg.CPU()
		if _, runnable := w.ffmpeg.RunDelay(); used == before && !runnable {
			return
		}
		before = used
	}
}

// failure returns the error of a video whose ffmpeg has failed.
func (w *Writer) failure(err error) error {
	text, output := err.Error(), w.ffmpeg.Stderr()
	if w.file == "" {
		text = strings.ReplaceAll(text, w.path, w.name)
	}
	switch {
	case strings.Contains(output, "Unknown encoder"):
		return fmt.Errorf("overlay: %s cannot be written: %w (%s)", w.name, ErrNoEncoder, text)
	case strings.Contains(output, "No space left on device"), strings.Contains(output, "Disk quota exceeded"):
		return fmt.Errorf("overlay: %s cannot be written: %w (%s)", w.name, syscall.ENOSPC, text)
	}
	return fmt.Errorf("overlay: %s cannot be written: %s", w.name, text)
}
