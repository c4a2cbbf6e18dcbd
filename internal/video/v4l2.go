package video

import (
	"errors"
	"fmt"
	"io"
)

// cameraArgs asks the device for what is wanted, so that it need not send more. A driver that cannot do so takes the
// nearest that it can, and the filters do the rest.
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

// cameraError says of a device's failure what to do. The end of its video is one too: ffmpeg ends without complaint
// when a camera is unplugged.
func (r *Reader) cameraError(err error) error {
	var e *Error
	switch {
	case err == io.EOF:
		return r.src.fail(EndedEarly, "after "+r.progress()+": was the camera unplugged?"+joined(detailFrom(r.ffmpeg.Stderr(), r.src.red)), nil)
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
		e.Detail += "; " + hint
	}
	return e
}
