package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/client/play"
	"millrace/internal/overlay"
	"millrace/stream"
)

const streamExamples = `  millrace stream clip.mp4 --model motion
  millrace stream rtsp://camera.local/live --model motion --max-age-ms 500
  millrace stream clip.mp4 --model cost --policy every --realtime=false
  millrace stream /dev/video0 --model motion --overlay seen.mp4
  millrace stream clip.mp4 --model motion --overlay seen.mp4 --picture seen.png
  millrace stream http://camera.local/now.jpg --model motion --overlay now.png --json`

func streamCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "stream FILE|URL",
		Short: "Send a video or a picture to a model, frame by frame",
		Long: `Send a video to a model of a running server over WebSocket, in real time, and count how every frame ended. The source is a
file, a camera (/dev/video0) or an address for ffmpeg (rtsp, http, https, rtmp). Frames are scaled to the size of the
model's input. stream prints a line each second and a summary at the end; Ctrl-C ends the stream early, with the summary.

With --overlay the boxes, classes, keypoints and masks of the results are drawn over the frames and written as a video.
The video has every sent frame at the frame's time. A frame without a result shows the newest earlier result, and a mark.
If drawing is slower than the video, sending waits. The overlay of a picture is a picture.`,
		Example: streamExamples,
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	host := remoteFlags(c)
	f := c.Flags()
	var (
		o        play.Options
		policy   string
		maxAge   int
		realtime bool
		asJSON   bool
	)
	f.StringVar(&o.Model, "model", "", "the model (required)")
	f.StringVar(&o.Version, "version", "", "version of the model (any)")
	f.Float64Var(&o.FPS, "fps", 0, "the most frames to send per second (all)")
	f.BoolVar(&realtime, "realtime", true, "send files at their own speed; false = as fast as they are read")
	f.BoolVar(&o.Loop, "loop", false, "start a file again at its end")
	f.DurationVar(&o.Limit, "duration", 0, "how much of the video to send, such as 10s (all)")
	f.IntVar(&o.Width, "width", 0, "width of the frames that are sent, in pixels (as the model needs)")
	f.IntVar(&o.Height, "height", 0, "height of the frames that are sent, in pixels (as the model needs)")
	f.StringVar(&policy, "policy", "", "latest or every (the model's)")
	f.IntVar(&maxAge, "max-age-ms", 0, "drop frames that would be older than this when answered (the model's setting)")
	f.StringVar(&o.Overlay, "overlay", "", "write the video with the results drawn over it: .mp4, .mkv, .webm or "+
		".gif; for a picture .png or .jpg")
	f.StringVar(&o.Picture, "picture", "", "write the frame with the most boxes: .png or .jpg")
	f.BoolVar(&asJSON, "json", false, "the summary as JSON on standard output, progress on standard error")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.Source, o.Fast = args[0], !realtime
		o.Policy = stream.Policy{Mode: stream.Mode(policy), MaxAge: milliseconds(maxAge)}
		if err := checkStream(f, &o); err != nil {
			return err
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		o.Client = cl
		if err := waitLoaded(c.Context(), cl, o.Model, c.ErrOrStderr()); err != nil {
			return err
		}
		out := c.OutOrStdout()
		lines := newProgress(out)
		if asJSON {
			lines = newProgress(c.ErrOrStderr())
		}
		o.OnSecond = func(p play.Progress) { lines.line(progressText(p)) }
		s, err := play.Run(c.Context(), o)
		lines.end()
		err = withFlagNames(suggestModel(c.Context(), cl, o.Model, err))
		if err != nil && s.Frames == 0 {
			return err
		}
		if asJSON {
			err = firstOf(err, writeJSON(out, s))
		} else {
			err = firstOf(err, table(out, summaryRows(&s)...))
		}
		return err
	}
	return c
}

// Limits of the sides of frames, equal to the limits of a server stream's width.
const minSide, maxSide = 16, 1 << 14

func checkStream(flags *pflag.FlagSet, o *play.Options) error {
	if err := notZero(flags, "fps", "width", "height", "duration", "max-age-ms"); err != nil {
		return err
	}
	switch {
	case o.Model == "":
		return usagef("--model is missing: see `millrace models`")
	case o.FPS < 0 || o.FPS > 1000 || o.FPS != o.FPS:
		return usagef("--fps: %v is not more than 0 and at most 1000", o.FPS)
	case o.Width != 0 && (o.Width < minSide || o.Width > maxSide):
		return usagef("--width: %d is not between %d and %d", o.Width, minSide, maxSide)
	case o.Height != 0 && (o.Height < minSide || o.Height > maxSide):
		return usagef("--height: %d is not between %d and %d", o.Height, minSide, maxSide)
	case o.Limit < 0:
		return usagef("--duration: %v is negative", o.Limit)
	}
	if err := o.Policy.Validate(); err != nil {
		return usagef("%w", withFlagNames(err))
	}
	if o.Overlay != "" && overlay.CheckVideo(o.Overlay) != nil && overlay.CheckPicture(o.Overlay) != nil {
		return usagef("--overlay: %s does not end in %s, nor in .png or .jpg", o.Overlay, overlay.Extensions)
	}
	if o.Picture != "" {
		if overlay.CheckPicture(o.Picture) != nil {
			return usagef("--picture: %s does not end in .png or .jpg", o.Picture)
		}
	}
	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
