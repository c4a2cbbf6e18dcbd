package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"millrace/workers/motion"
)

// errNoGStreamer is the reason why the row against GStreamer has no figures.
var errNoGStreamer = errors.New("needs gst-launch-1.0 with the plugins libav and opencv: scripts/deps.sh bench")

// gstreamerCameras is the number of cameras of the row against GStreamer.
const gstreamerCameras = 4

// besideGStreamer compares the processor time of a frame of H.264 that the server reads, decodes and gives to motion
// with a pipeline of GStreamer that decodes the frame and detects motion in a picture of the same size.
func (b *bench) besideGStreamer() error {
	camera := pulledCameras[0]
	f, err := b.footageOf("h264", camera.width, camera.height)
	if err != nil {
		return err
	}
	cameras := min(gstreamerCameras, camera.cameras)
	row := Row{Unit: "ms", Name: fmt.Sprintf("%s, %d cameras at %d fps: CPU a frame with motion, against GStreamer "+
		"with motioncells", f.name(), cameras, videoRate)}
	p := pulledVideo{bench: b, footage: f, cameras: cameras, paced: true}
	missing := exec.Command("gst-inspect-1.0", "--exists", "motioncells").Run() != nil ||
		exec.Command("gst-inspect-1.0", "--exists", "avdec_h264").Run() != nil
	var theirs, ours, ratios []float64
	for range max(b.rounds/3, 1) {
		own, err := p.serve()
		if err != nil {
			return err
		}
		ours = append(ours, own.total())
		if missing {
			continue
		}
		each, err := b.gstreamer(f, cameras)
		if err != nil {
			return err
		}
		if theirs = append(theirs, each); each > 0 { // 0 in rounds that are too short
			ratios = append(ratios, own.total()/each)
		}
	}
	row.Millrace = median(ours)
	if missing {
		row.Name += " (" + errNoGStreamer.Error() + ")"
	} else if row.Bare = median(theirs); ratios != nil {
		row.Ratio = median(ratios)
	}
	b.add(row)
	return nil
}

// gstreamer returns the processor time of a frame in ms, without the time to start.
func (b *bench) gstreamer(f footage, cameras int) (each float64, err error) {
	d, err := motion.NewDetector(motion.Settings{})
	if err != nil {
		return 0, err
	}
	set := d.Settings()
	var pipelines []*exec.Cmd
	var said bytes.Buffer
	defer func() {
		for _, c := range pipelines {
			err = errors.Join(err, c.Process.Signal(os.Interrupt))
			_ = c.Wait() // interrupted
		}
		if err != nil {
			err = fmt.Errorf("gst-launch-1.0: %w: %s", err, said.String())
		}
	}()
	for range cameras {
		c := exec.Command("gst-launch-1.0", "-q", "filesrc", "location="+f.path, "!", "matroskademux", "!", "h264parse",
			"!", "avdec_h264", "max-threads=1", "!", "videoscale", "!",
			fmt.Sprintf("video/x-raw,width=%d,height=%d", set.Width, set.Height), "!", "videoconvert", "!",
			"motioncells", "display=false", "!", "fakesink", "sync=true")
		if err := c.Start(); err != nil {
			return 0, err
		}
		pipelines = append(pipelines, c)
	}
	time.Sleep(b.span() / 6) // the clip must not end before the second moment
	var uses [2]time.Duration
	for i := range uses {
		if i > 0 {
			time.Sleep(b.span())
		}
		for _, c := range pipelines {
			use, err := usageOf(c.Process.Pid)
			if err != nil {
				return 0, err
			}
			uses[i] += use.own + use.children
		}
	}
	return (uses[1] - uses[0]).Seconds() * 1000 / (b.span().Seconds() * videoRate * float64(cameras)), nil
}
