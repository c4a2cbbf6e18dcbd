package video

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// cameraArgs requests the wanted size and rate from the device. The driver chooses the nearest supported size and
// rate, and the filters do the rest.
func (o *Options) cameraArgs() (args []string) {
	args = []string{"-f", "v4l2"}
	if o.Width > 0 && o.Height > 0 {
		args = append(args, "-video_size", fmt.Sprintf("%dx%d", o.Width, o.Height))
	}
	if o.FPS > 0 {
		args = append(args, "-framerate", fmt.Sprintf("%g", o.FPS))
	}
	return args
}

// cameraError adds advice to the error of a device. The end of a device's video is an error too: ffmpeg ends with
// status 0 when a camera is unplugged.
func (r *Reader) cameraError(err error) error {
	var e *Error
	switch {
	case err == io.EOF:
		return r.src.failAfter(r.said.warnings(), EndedEarly, "after "+r.progress()+": was the camera unplugged?", nil)
	case !errors.As(err, &e):
		return err
	}
	hint := ""
	switch e.Kind {
	case NotFound:
		hint = "is the camera connected? ls /dev/video* shows the devices"
	case Auth:
		hint = "the user must be in the group video: usermod -aG video NAME"
	case NotVideo:
		hint = "some cameras have a second device without pictures: try the one with the lower number"
	}
	if hint != "" {
		e.Detail = strings.TrimPrefix(e.Detail+"; "+hint, "; ")
	}
	return e
}
