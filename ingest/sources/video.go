package sources

import (
	"cmp"
	"context"
	"math"
	"path/filepath"
	"strings"
	"time"

	"millrace/internal/video"
	"millrace/stream"
)

// startTimeout is the longest time until the first frame, and, with decode: key, until the next
// frame: a camera may send as few as one key frame in 30 s.
const startTimeout = 40 * time.Second

func init() {
	Register(Kind{
		Name: "video",
		Schemes: []string{
			video.SchemeFile, video.SchemeHTTP, video.SchemeHTTPS, video.SchemeRTSP, video.SchemeRTSPS,
			video.SchemeRTMP, video.SchemeRTMPS, video.SchemeV4L2, video.SchemeExec,
		},
		Request:  []string{video.SchemeHTTP, video.SchemeHTTPS, video.SchemeRTSP, video.SchemeRTSPS},
		Examples: []string{"clip.mp4", "rtsp://127.0.0.1:9/live", "http://127.0.0.1:9/picture.jpg"},
		FPS:      true,
		// other schemes have no beginning to return to
		Loop:      []string{video.SchemeFile, video.SchemeHTTP, video.SchemeHTTPS},
		New:       func() Settings { return new(Video) },
		Relative:  relativeFile,
		Transport: func(s Settings, address string) string { return s.(*Video).transport(address) },
	})
}

// Video is a source read by ffmpeg: files, devices, the output of programs, and network addresses.
type Video struct {
	Transport string        `json:"rtsp_transport" words:"tcp udp" unset:"tcp" request:"any" advanced:"yes" help:"transport of RTSP packets"`
	Width     int           `json:"width" min:"16" max:"16384" unset:"the video's" request:"any" advanced:"yes" example:"640" help:"scale frames of the video to this width in pixels"`
	Poll      time.Duration `json:"poll" min:"100ms" max:"1h" unset:"the address is a video" request:"any" example:"5s" advanced:"yes" help:"the http address is a JPEG picture: request the picture at this interval"`
	Decode    string        `json:"decode" words:"all reference key" unset:"all" request:"any" advanced:"yes" help:"pictures of the video that are decoded: all, reference (without pictures that no other picture needs), or key (only pictures that need no other picture, at a fraction of the cost)"`
}

// Validate implements Settings.
func (c *Video) Validate(address string, publicOnly bool) error {
	bad := func(field, format string, args ...any) error {
		return stream.Errorf(stream.InvalidArgument, field, format, args...)
	}
	scheme, err := video.ClassifyURL(address)
	if err != nil {
		return bad("source", "%w", err)
	}
	if c.Poll != 0 && scheme != video.SchemeHTTP && scheme != video.SchemeHTTPS {
		return bad("poll", "is for http and https sources, but this one is %s: leave it out", scheme)
	}
	switch {
	case c.Transport == "":
	case scheme != video.SchemeRTSP && scheme != video.SchemeRTSPS:
		return bad("rtsp_transport", "is for rtsp and rtsps sources, but this one is %s: leave it out", scheme)
	case c.Transport == "udp" && scheme == video.SchemeRTSPS:
		return bad("rtsp_transport", "udp is for rtsp sources, rtsps is read over tcp only: leave it out, or use an "+
			"rtsp address")
	case c.Transport == "udp" && publicOnly: // an RTSP server may choose any address for UDP packets
		return stream.Errorf(stream.PermissionDenied, "rtsp_transport",
			"udp may lead to private addresses: leave it out, or %s", allowPrivate)
	}
	return nil
}

// transport returns the transport of the address's packets: tcp or udp, or "" without RTSP.
func (c *Video) transport(address string) string {
	switch scheme, _ := video.ClassifyURL(address); scheme {
	case video.SchemeRTSP, video.SchemeRTSPS:
		return cmp.Or(c.Transport, "tcp")
	}
	return ""
}

// Open implements Settings.
func (c *Video) Open(ctx context.Context, address string, e Env) (Reader, error) {
	return OpenVideo(ctx, c.options(address, e), e)
}

// options are how the address is opened.
func (c *Video) options(address string, e Env) video.Options {
	o := video.Options{
		URL: address, FPS: e.FPS, Width: c.Width, Loop: e.Loop, Decode: video.Decode(c.Decode), Allow: e.Allow,
		OneThread: e.OneThread, Needs: e.Needs, MaxPixels: e.MaxPixels, Hardware: e.Hardware, Sandbox: e.Sandbox,
		Upload: e.Upload, Programs: e.Programs, Packets: e.Packets, StartTimeout: startTimeout,
		StallTimeout: video.DefaultStallTimeout,
	}
	if o.Decode == video.DecodeKey {
		o.StallTimeout = startTimeout
	}
	if o.FPS > 0 { // a frame may arrive a whole interval after the last frame, and may be a late key frame
		o.StallTimeout += time.Duration(2 / o.FPS * float64(time.Second))
	}
	if o.Poll = c.Poll; o.Poll > 0 { // some requests may fail
		o.StallTimeout += 4 * o.Poll
	}
	if c.Transport != "" {
		o.InputArgs = []string{"-rtsp_transport", c.Transport}
	}
	return o
}

// OpenVideo opens a video. Frames are NV12, whatever Format is.
func OpenVideo(ctx context.Context, o video.Options, e Env) (Reader, error) {
	o.Format, o.Encoded = video.NV12, ""
	r, err := video.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &videoReader{Reader: r, frames: NewFrames(r, e.Memory), options: o}, nil
}

// videoReader reads an open video.
type videoReader struct {
	*video.Reader
	frames  *Frames
	options video.Options
}

var (
	_ Resizer = (*videoReader)(nil)
	_ Skipper = (*videoReader)(nil)
)

// Info implements Reader.
func (r *videoReader) Info() Info {
	i := r.Reader.Info()
	frames := int64(math.Round(i.Duration.Seconds() * i.FPS))
	return Info{Width: i.Width, Height: i.Height, PixelAspect: i.FrameAspect(), FPS: i.FPS, Frames: frames,
		Codec: i.Codec, Arrival: i.Arrival, Ends: i.File || i.Duration > 0}
}

// Next implements Reader.
func (r *videoReader) Next() (stream.Frame, error) {
	f, err := r.frames.Next()
	if video.KindOf(err) == video.EndedEarly && r.Reader.Info().File && !r.options.Loop {
		// The file is damaged or incomplete: all readable frames have been read, and reading the file again would
		// repeat frames.
		err = final{err}
	}
	return f, err
}

// relativeFile puts dir in front of the relative path of a file.
func relativeFile(address, dir string) string {
	scheme, err := video.ClassifyURL(address)
	if err != nil || scheme != video.SchemeFile || strings.HasPrefix(address, "file:") || filepath.IsAbs(address) {
		return address
	}
	return filepath.Join(dir, address)
}
