package video

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"millrace/internal/child"
)

// route is the way by which ffmpeg and ffprobe reach a source. Other users of the machine can read command lines, so
// a command line never has an address with a password or token: for HTTP the proxy redirects to the address, for RTSP
// and RTMP the address is on descriptor 3. All HTTP goes through the proxy, for a bounded number of requests. With
// Options.Allow, connections go through the proxy or the relay, and both check addresses.
type route struct {
	scheme, target string // from parseSource

	address  string // the argument of "-i", unless secret
	secret   bool   // the address is written to descriptor 3
	extra    []string
	env      []string
	dialer   *dialer   // of the proxy or the relay; nil for neither
	listener *loopback // the same
	feed     *feed     // this process reads the source; nil where ffmpeg does
}

// newRoute makes the route to a source, and sets the placeholder address in src's redactor. fail is called, from any
// goroutine, with an *Error that ends the source. The caller must call close.
func newRoute(ctx context.Context, o *Options, src *source, scheme, target string, fail func(error)) (*route, error) {
	r := &route{scheme: scheme, target: target, address: target}
	hide := isNetwork(scheme) && Redact(target) != target
	web := scheme == SchemeHTTP || scheme == SchemeHTTPS
	if !hide && !web && o.Allow == nil {
		return r, nil
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, src.fail(Unsupported, "the address cannot be parsed", nil)
	}
	d := &dialer{allow: o.Allow, src: *src, fail: fail, started: make(chan struct{})}
	r.dialer = d
	switch scheme {
	case SchemeHTTP, SchemeHTTPS:
		if r.feed, err = newWeb(d, u).feed(ctx, o); err != nil || r.feed != nil {
			return r, err
		}
		var p *proxy
		if p, r.listener, err = newProxy(ctx, d, u); err != nil {
			return nil, err
		}
		r.env, r.extra = p.env(r.listener.addr), []string{"httpproxy"}
		if hide {
			r.address = "http://" + placeholderHost + u.EscapedPath()
			src.red = src.red.withAddress(placeholderHost, u.Host)
		}
	case SchemeRTSP, SchemeRTSPS:
		if r.secret = hide; o.Allow == nil {
			break
		}
		if r.listener, err = newRelay(ctx, d, u); err != nil {
			return nil, err
		}
		src.red = src.red.withAddress(r.listener.addr, u.Host)
		u.Scheme, u.Host = SchemeRTSP, r.listener.addr
		r.address = u.String()
	case SchemeRTMP, SchemeRTMPS:
		r.secret = hide
	}
	if o.Allow != nil && r.listener == nil {
		return nil, src.fail(Unsupported, fmt.Sprintf(
			"Options.Allow works for http, https, rtsp and rtsps, not for %s", scheme), nil)
	}
	return r, nil
}

// start starts ffmpeg or ffprobe, confined if confine is set, and writes a secret address to the program's descriptor
// 3. The error is as for Open.
func (r *route) start(ctx context.Context, o *Options, src source, spec child.Spec,
	confine bool) (*child.Process, error) {
	spec.Env, spec.Grace = Environment(r.env...), stopGrace
	if confine {
		spec.Sandbox = r.sandbox(spec.Path)
	}
	if r.feed != nil {
		spec.ExtraFiles = append([]*os.File{r.feed.file}, spec.ExtraFiles...)
		defer r.feed.started()
	} else if r.secret {
		script, err := r.script(o)
		if err != nil {
			return nil, fmt.Errorf("video: %w", err)
		}
		defer script.Close()
		spec.ExtraFiles = append([]*os.File{script}, spec.ExtraFiles...)
	}
	p, err := child.Start(ctx, spec)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, src.startError(spec.Path, err)
	}
	if r.dialer != nil {
		r.dialer.start(p.Pid())
	}
	return p, nil
}

// nextDescriptor returns the descriptor of the first of Spec.ExtraFiles given to start.
func (r *route) nextDescriptor() int {
	if r.feed != nil || r.secret {
		return 4
	}
	return 3
}

// script returns a pipe with the ffconcat script, always shorter than the pipe's memory.
func (r *route) script(o *Options) (*os.File, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	_ = in.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err = io.WriteString(in, r.list(o)); err != nil {
		_ = out.Close()
		return nil, err
	}
	return out, nil
}

// list is an ffconcat script with one address. Options of the input must be in the script too.
func (r *route) list(o *Options) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	s := "ffconcat version 1.0\nfile " + quote(r.address) + "\n"
	args := append(r.inputArgs(o), "-fpsprobesize", "0")
	if r.scheme == SchemeRTMP || r.scheme == SchemeRTMPS {
		args = append(args, analyzeArgs...)
	} else {
		// ffmpeg analyses the source twice: as an entry of the script, where no -max_pixels applies, and as the
		// script. The first analysis must not decode, and needs only one packet.
		args = append(args, "-codec_whitelist", "none", "-probesize", "32")
	}
	for i := 0; i+1 < len(args); i += 2 {
		s += "option " + strings.TrimPrefix(args[i], "-") + " " + quote(args[i+1]) + "\n"
	}
	return s
}

func (r *route) rtsp() bool { return r.scheme == SchemeRTSP || r.scheme == SchemeRTSPS }

// recordFirstFrame records that the first frame was read.
func (r *route) recordFirstFrame() {
	if r.dialer != nil {
		r.dialer.playing.Store(true)
	}
}

// close ends the proxy or relay, after the end of ffmpeg or when its result is not needed.
func (r *route) close() {
	if r == nil {
		return
	}
	r.feed.close()
	if r.listener != nil {
		r.listener.close()
	}
}
