package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"millrace/internal/child"
)

// Info describes an open source.
type Info struct {
	// Width and Height are the size of the frames from Next, and the upper bound of the size reduced by
	// Options.Needs.
	Width, Height int
	// FPS is the average rate of the frames from Next, 0 if unknown.
	FPS float64
	// SourceWidth and SourceHeight are the size before scaling and after rotation; 0 if unknown.
	SourceWidth, SourceHeight int
	// PixelAspect is the width of a pixel of the source divided by its height; 0 if unknown (treat as 1).
	PixelAspect float64
	// Codec is ffmpeg's name of the source's codec, such as "h264"; "" if unknown.
	Codec string
	// Duration is the length of the video, 0 if unknown or endless.
	Duration time.Duration
	// HasVideo is true: a source without video does not open.
	HasVideo bool
	// File is true for a regular file of this machine: a file has an end, even if Duration is unknown.
	File bool
	// Arrival is true for a source whose pictures have no times: PTS is then the time of arrival, counted from the
	// first picture.
	Arrival bool

	// videoLength is the length of the video stream, 0 where the file does not state the length. Sound may make the
	// whole source longer.
	videoLength time.Duration
}

// FrameAspect is the displayed width of a pixel of a frame of Width x Height divided by its height; 0 where the
// aspect is unknown (treat as 1) or implausible for a camera or a film.
func (i Info) FrameAspect() float64 {
	switch {
	case i.PixelAspect < 1.0/16 || i.PixelAspect > 16 || min(i.SourceWidth, i.SourceHeight, i.Width, i.Height) < 1:
		return 0
	case i.Width == i.SourceWidth && i.Height == i.SourceHeight:
		return i.PixelAspect
	}
	// The frames are scaled, by two factors.
	return i.PixelAspect * float64(i.SourceWidth) / float64(i.SourceHeight) * float64(i.Height) / float64(i.Width)
}

// probed is the requested part of ffprobe's output.
type probed struct {
	Streams []struct {
		CodecName    string `json:"codec_name"`
		Width        int    `json:"width"`
		Height       int    `json:"height"`
		PixelAspect  string `json:"sample_aspect_ratio"`
		AvgFrameRate string `json:"avg_frame_rate"`
		RFrameRate   string `json:"r_frame_rate"`
		Duration     string `json:"duration"`
		SideData     []struct {
			Rotation float64 `json:"rotation"`
		} `json:"side_data_list"`
	} `json:"streams"`
	Format *struct {
		Name     string `json:"format_name"`
		Duration string `json:"duration"`
		Streams  int    `json:"nb_streams"`
	} `json:"format"`
	Error *struct {
		Code   int    `json:"code"`
		String string `json:"string"`
	} `json:"error"`
}

const (
	probeEntries = "stream=codec_name,width,height,sample_aspect_ratio,avg_frame_rate,r_frame_rate," +
		"duration:stream_side_data=rotation:format=format_name,duration,nb_streams:error=code,string"
	maxProbe = 1 << 20
)

// Probe describes a source with ffprobe, without decoding. Probe uses only URL, StartTimeout, Protocols, InputArgs,
// Log and FFprobe; Info's Width, Height and FPS are the source's. The error is an *Error, ctx's, or an error about
// the options.
func Probe(ctx context.Context, o Options) (Info, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Info{}, err
	}
	scheme, target, err := parseSource(o.URL)
	if err != nil {
		return Info{}, &Error{Kind: Unsupported, URL: Redact(o.URL), Detail: err.Error(), Err: err}
	}
	src := newSource(o.URL)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from, err := newRoute(ctx, &o, &src, scheme, target, cancel)
	if err != nil {
		return Info{}, err
	}
	defer from.close()
	return src.probe(ctx, &o, from, time.Now().Add(o.StartTimeout))
}

// source makes the errors of a source.
type source struct {
	url string // redacted
	red redactor
}

func newSource(raw string) source {
	red := newRedactor(raw)
	return source{url: red.text(raw), red: red}
}

func (s source) fail(kind Kind, detail string, cause error) *Error {
	return &Error{Kind: kind, URL: s.url, Detail: detail, Err: cause}
}

// failAfter is fail with the output of ffmpeg or ffprobe.
func (s source) failAfter(stderr string, kind Kind, detail string, cause error) *Error {
	e := s.fail(kind, detail, cause)
	e.Output = lastLines(stderr, s.red)
	return e
}

// startError returns the error of a program that failed to start.
func (s source) startError(program string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return s.fail(FFmpegMissing, program+" was not found", err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("video: %w", err)
}

func (s source) probe(ctx context.Context, o *Options, from *route, deadline time.Time) (Info, error) {
	args, address := from.input(o)
	args = slices.Concat([]string{"-hide_banner", "-loglevel", "warning"}, from.allowArgs(o.Upload), args)
	args = append(args, "-select_streams", "V", "-show_error", "-show_entries", probeEntries, "-of", "json", "-i",
		address)
	// The kernel enforces the limit even while nobody reads.
	limits := child.Limits{CPU: o.StartTimeout}
	p, err := from.start(ctx, o, s, child.Spec{Path: o.FFprobe, Args: args, OnStderr: logger(o.Log, s.red),
		Limits: limits}, o.Sandbox)
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = p.Stop(0) }()
	_ = p.Stdout.SetReadDeadline(deadline)
	out, err := io.ReadAll(io.LimitReader(p.Stdout, maxProbe))
	if ctx.Err() != nil {
		return Info{}, context.Cause(ctx)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return Info{}, s.fail(Timeout, fmt.Sprintf("no usable data arrived within %v", o.StartTimeout), err)
	}
	exit := waitForExit(p)
	if ctx.Err() != nil {
		return Info{}, context.Cause(ctx)
	}
	var ended *child.ExitError
	if errors.As(exit, &ended) && ended.Signal == syscall.SIGXCPU {
		return Info{}, s.fail(TooSlow, fmt.Sprintf("ffprobe has used %v of processor time",
			p.CPU().Round(time.Millisecond)), exit)
	}
	var answer probed
	if err := json.Unmarshal(out, &answer); err != nil {
		if killedFromOutside(exit) {
			return Info{}, s.failAfter(p.Stderr(), Killed, "it was ffprobe", exit)
		}
		kind, detail := explain(p.Stderr(), "")
		return Info{}, s.failAfter(p.Stderr(), kind, detail, exit)
	}
	return s.classify(&answer, from.scheme, from.target, p.Stderr())
}

// classify converts ffprobe's output to Info or an error.
func (s source) classify(a *probed, scheme, target, stderr string) (Info, error) {
	if a.Error != nil {
		// Standard error comes first: a protocol's own message is more precise than "Input/output error".
		kind, detail := explain(stderr, a.Error.String)
		if scheme == SchemeFile {
			switch st, err := os.Stat(target); {
			case err != nil:
			case st.IsDir():
				kind, detail = NotVideo, "it is a folder"
			case st.Mode().IsRegular() && st.Size() == 0:
				kind, detail = NotVideo, "the file is empty"
			}
		}
		return Info{}, s.failAfter(stderr, kind, detail, nil)
	}
	if len(a.Streams) == 0 {
		detail := "it has no streams"
		if a.Format != nil && a.Format.Streams > 0 {
			detail = fmt.Sprintf("it is %s with sound, subtitles or data only", a.Format.Name)
		}
		return Info{}, s.fail(NotVideo, detail, nil)
	}
	v := &a.Streams[0]
	info := Info{Width: v.Width, Height: v.Height, Codec: v.CodecName, HasVideo: true, FPS: rate(v.AvgFrameRate)}
	if info.FPS == 0 {
		info.FPS = rate(v.RFrameRate)
	}
	info.PixelAspect = rate(strings.ReplaceAll(v.PixelAspect, ":", "/"))
	for _, d := range v.SideData {
		if quarterTurn(d.Rotation) {
			info.PixelAspect = rotatedAspect(info.PixelAspect)
			info.Width, info.Height = info.Height, info.Width
		}
	}
	info.SourceWidth, info.SourceHeight = info.Width, info.Height
	if info.Duration = seconds(v.Duration); info.Duration == 0 && a.Format != nil {
		info.Duration = seconds(a.Format.Duration)
	}
	// The length of a transport stream is a guess from its last timestamp, possibly of another clock than the first
	// timestamp.
	if a.Format == nil || a.Format.Name != "mpegts" {
		info.videoLength = seconds(v.Duration)
	}
	if scheme == SchemeFile {
		st, err := os.Stat(target)
		info.File = err == nil && st.Mode().IsRegular()
	}
	return info, nil
}

// rotatedAspect returns the pixel aspect ratio of a picture after a turn by 90 degrees.
func rotatedAspect(aspect float64) float64 {
	if aspect == 0 {
		return 0
	}
	return 1 / aspect
}

// quarterTurn reports whether a rotation exchanges width and height.
func quarterTurn(degrees float64) bool {
	q := math.Mod(math.Abs(degrees), 180)
	return q > 45 && q < 135
}

// rate parses "30000/1001"; 0 for "0/0" and anything invalid.
func rate(s string) float64 {
	num, den, ok := strings.Cut(s, "/")
	n, err1 := strconv.ParseFloat(num, 64)
	d, err2 := 1.0, error(nil)
	if ok {
		d, err2 = strconv.ParseFloat(den, 64)
	}
	if err1 != nil || err2 != nil || !(n > 0) || !(d > 0) || n/d > 100000 {
		return 0
	}
	return n / d
}

// seconds parses a duration such as "3.040000"; 0 for "N/A" and invalid text.
func seconds(s string) time.Duration {
	sec, err := strconv.ParseFloat(s, 64)
	if err != nil || !(sec > 0 && sec < 1e9) {
		return 0
	}
	return time.Duration(sec * float64(time.Second))
}
