package main

import (
	"time"

	"github.com/spf13/cobra"

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
		Long: `Send a video to a model of a running server over WebSocket, in real time, and account for every frame. The source is a
file, a camera (/dev/video0) or an address (rtsp, http, https, rtmp) that ffmpeg reads. Frames are scaled to what the
model needs. A line each second tells how it goes, a summary ends it; Ctrl-C ends it early, with its summary.

With --overlay the boxes, classes, keypoints and masks that the model answers are drawn over the frames and written as
a video, in which every frame sent is once, at its time; one without a result shows the newest one before it, and says
so. If drawing is slower than the video, sending waits for it. A picture's overlay is a picture.`,
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
	f.StringVar(&o.Model, "model", "", "the model (needed)")
	f.Float64Var(&o.FPS, "fps", 0, "at most so many frames a second (all)")
	f.BoolVar(&realtime, "realtime", true, "files at the speed at which they play; false = as fast as they are read")
	f.BoolVar(&o.Loop, "loop", false, "files start over at their end")
	f.DurationVar(&o.Limit, "duration", 0, "of the video to send, such as 10s (all)")
	f.IntVar(&o.Width, "width", 0, "of the frames as sent, in pixels (what the model needs)")
	f.IntVar(&o.Height, "height", 0, "of the frames as sent, in pixels (what the model needs)")
	f.StringVar(&policy, "policy", "", "latest or every (the model's)")
	f.IntVar(&maxAge, "max-age-ms", 0, "a frame that would be answered older is dropped (the model's)")
	f.StringVar(&o.Overlay, "overlay", "", "write the video with the results drawn over it: .mp4, .mkv, .webm or .gif; for a picture .png or .jpg")
	f.StringVar(&o.Picture, "picture", "", "write the frame with the most boxes: .png or .jpg")
	f.BoolVar(&asJSON, "json", false, "the summary as JSON on standard output, progress on standard error")
	c.RunE = func(c *cobra.Command, args []string) error {
		o.Source, o.Fast = args[0], !realtime
		o.Policy = stream.Policy{Mode: stream.Mode(policy), MaxAge: time.Duration(maxAge) * time.Millisecond}
		if err := checkStream(&o); err != nil {
			return err
		}
		cl, err := host.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		o.Client = cl
		out := c.OutOrStdout()
		lines := newProgress(out)
		if asJSON {
			lines = newProgress(c.ErrOrStderr())
		}
		o.OnSecond = func(p play.Progress) { lines.line(second(p)) }
		s, err := play.Run(c.Context(), o)
		lines.end()
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

func checkStream(o *play.Options) error {
	switch {
	case o.Model == "":
		return usagef("--model is missing: see `millrace models`")
	case o.FPS < 0 || o.FPS > 1000 || o.FPS != o.FPS:
		return usagef("--fps: %v is not between 0 and 1000", o.FPS)
	case o.Width < 0 || o.Width > 1<<14:
		return usagef("--width: %d is not between 1 and %d", o.Width, 1<<14)
	case o.Height < 0 || o.Height > 1<<14:
		return usagef("--height: %d is not between 1 and %d", o.Height, 1<<14)
	case o.Limit < 0:
		return usagef("--duration: %v is negative", o.Limit)
	}
	if err := o.Policy.Validate(); err != nil {
		return usagef("%w", inFlags(err))
	}
	if o.Overlay != "" && overlay.CheckVideo(o.Overlay) != nil && overlay.CheckPicture(o.Overlay) != nil {
		return usagef("--overlay: %s does not end in %s, nor in .png or .jpg", o.Overlay, overlay.Extensions)
	}
	if o.Picture != "" {
		if err := overlay.CheckPicture(o.Picture); err != nil {
			return usagef("--picture: %w", err)
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
