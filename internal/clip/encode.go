package clip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// encoder is an ffmpeg child that reads raw RGB frames and writes an MP4 file.
type encoder struct {
	io.WriteCloser
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func startEncoder(ctx context.Context, program string, s Settings, path string) (*encoder, error) {
	e := &encoder{}
	// A fixed number of threads and no program versions in the file: the same Settings give the same file as long as
	// ffmpeg is the same.
	e.cmd = exec.CommandContext(ctx, program,
		"-hide_banner", "-loglevel", "error", "-y",
		"-f", "rawvideo", "-pix_fmt", "rgb24", "-s", fmt.Sprintf("%dx%d", s.Width, s.Height), "-r", fmt.Sprint(s.FPS),
		"-i", "pipe:0",
		"-c:v", "libx264", "-preset", "veryfast", "-crf", "23", "-pix_fmt", "yuv420p", "-g", fmt.Sprint(2*s.FPS),
		"-threads", "2",
		"-flags:v", "+bitexact", "-fflags", "+bitexact", "-movflags", "+faststart", "-f", "mp4", "file:"+path)
	e.cmd.Stderr = &e.stderr
	var err error
	if e.WriteCloser, err = e.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := e.cmd.Start(); errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%s is not installed or not in PATH; install it: apt-get install ffmpeg", program)
	} else if err != nil {
		return nil, err
	}
	return e, nil
}

// Close ends the file and waits for ffmpeg.
func (e *encoder) Close() error {
	_ = e.WriteCloser.Close()
	if err := e.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", e.cmd.Path, err, strings.TrimSpace(e.stderr.String()))
	}
	return nil
}
