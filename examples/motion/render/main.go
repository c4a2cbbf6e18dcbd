// Command render draws a short clip of moving shapes and writes their positions in every frame.
//
// The clip is for testing and measuring motion detectors. The command needs ffmpeg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"millrace/internal/clip"
)

const usage = `Usage: render -o DIR [flags]

Draws a clip of moving shapes: DIR/motion.mp4 (H.264), and DIR/motion.json with the box of every
shape in every frame. The same flags give the same pictures. Needs ffmpeg with libx264.

Flags:
`

const examples = `
Examples:
  go run ./examples/motion/render -o out/motion
  go run ./examples/motion/render -o out/motion -seconds 30 -seed 7
  go run ./examples/motion/render -o out/small -size 320x240 -fps 15
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit status: 0, 1 for a failure, 2 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	out := flags.String("o", "", "folder for motion.mp4 and motion.json; created if it is missing (required)")
	seconds := flags.Float64("seconds", 10, "length of the clip")
	fps := flags.Int("fps", 30, "frames per second")
	size := flags.String("size", "640x480", "width x height in pixels, both even")
	seed := flags.Uint64("seed", 1, "another seed gives other colours, places and speeds")
	ffmpeg := flags.String("ffmpeg", "ffmpeg", "the ffmpeg program")
	help := func(w io.Writer) {
		_, _ = io.WriteString(w, usage)
		flags.SetOutput(w)
		flags.PrintDefaults()
		_, _ = io.WriteString(w, examples)
	}
	wrong := func(err error) int {
		_, _ = fmt.Fprintf(stderr, "render: %v\nTry: render --help\n", err)
		return 2
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		help(stdout)
		return 0
	} else if err != nil {
		return wrong(err)
	}
	s := clip.Settings{Seconds: *seconds, FPS: *fps, Seed: *seed}
	if flags.NArg() > 0 {
		return wrong(fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	if *out == "" {
		return wrong(errors.New("-o DIR is missing"))
	}
	w, h, _ := strings.Cut(*size, "x")
	var errW, errH error
	s.Width, errW = strconv.Atoi(w)
	s.Height, errH = strconv.Atoi(h)
	if errW != nil || errH != nil {
		return wrong(fmt.Errorf("-size is %q; want WIDTHxHEIGHT, such as 640x480", *size))
	}
	if err := s.Check(); err != nil {
		return wrong(err)
	}

	start := time.Now()
	path, err := clip.Write(ctx, s, *ffmpeg, *out, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "render: %v\n", err)
		return 1
	}
	_, _ = fmt.Fprintf(stderr, "render: done in %.1f s\n", time.Since(start).Seconds())
	_, _ = fmt.Fprintln(stdout, path)
	return 0
}
