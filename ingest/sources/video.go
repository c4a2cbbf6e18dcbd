package sources

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"
	"time"

	"millrace/internal/video"
	"millrace/stream"
)

// startTimeout is how long the first frame may take: a camera of a frame a second
// takes 25 s to open, because ffmpeg looks at some frames first, and ffprobe before
// it.
const startTimeout = 40 * time.Second

func init() {
	Register(Kind{
		Name: "video",
		Schemes: []string{
			video.SchemeFile, video.SchemeHTTP, video.SchemeHTTPS, video.SchemeRTSP, video.SchemeRTSPS,
			video.SchemeRTMP, video.SchemeRTMPS, video.SchemeV4L2, video.SchemeExec,
		},
		Request:  []string{video.SchemeHTTP, video.SchemeHTTPS, video.SchemeRTSP, video.SchemeRTSPS},
		New:      func() Settings { return new(Video) },
		Relative: relativeFile,
	})
}

// Video is what ffmpeg reads: files, devices, the output of programs, and
// addresses of the network.
type Video struct {
	Transport string `json:"rtsp_transport" words:"tcp udp" unset:"tcp" request:"any" help:"of an rtsp source: how its packets come"`
	Width     int    `json:"width" min:"16" max:"16384" unset:"as they come" request:"any" help:"pixels that frames of a video are scaled to"`
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
	switch {
	case c.Transport == "":
	case scheme != video.SchemeRTSP && scheme != video.SchemeRTSPS:
		return bad("rtsp_transport", "is for rtsp and rtsps sources, and this one is %s: leave it out", scheme)
	case c.Transport == "udp" && scheme == video.SchemeRTSPS:
		return bad("rtsp_transport", "udp is for rtsp sources, rtsps is read over tcp only: leave it out, or name an rtsp address")
	case c.Transport == "udp" && publicOnly: // an RTSP server names any address that packets are to go to
		return stream.Errorf(stream.PermissionDenied, "rtsp_transport", "udp may lead to private addresses: sources.allow_private allows those, else leave it out")
	}
	return nil
}

// RTSPTransport is how packets of the address come: tcp or udp, or "" where it is
// not RTSP.
func (c *Video) RTSPTransport(address string) string {
	switch scheme, _ := video.ClassifyURL(address); scheme {
	case video.SchemeRTSP, video.SchemeRTSPS:
		return cmp.Or(c.Transport, "tcp")
	}
	return ""
}

// Open implements Settings.
func (c *Video) Open(ctx context.Context, address string, e Env) (Reader, error) {
	o := video.Options{URL: address, FPS: e.FPS, Width: c.Width, Loop: e.Loop, Allow: e.Allow, StartTimeout: startTimeout}
	if c.Transport != "" {
		o.InputArgs = []string{"-rtsp_transport", c.Transport}
	}
	return OpenVideo(ctx, o, e)
}

// OpenVideo opens a video. Frames are RGB24, whatever Format says.
func OpenVideo(ctx context.Context, o video.Options, e Env) (Reader, error) {
	o.Format, o.Encoded = video.RGB24, ""
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

// Info implements Reader.
func (r *videoReader) Info() Info {
	i := r.Reader.Info()
	return Info{Width: i.Width, Height: i.Height, FPS: i.FPS, Codec: i.Codec, Ends: i.File || i.Duration > 0}
}

// Next implements Reader.
func (r *videoReader) Next() (stream.Frame, error) {
	f, err := r.frames.Next()
	if video.KindOf(err) == video.EndedEarly && r.Reader.Info().File && !r.options.Loop {
		// The file is damaged or not whole: what there is of it was read, and would only
		// come again.
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
