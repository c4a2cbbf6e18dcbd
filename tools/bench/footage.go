package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	draw "millrace/internal/clip"
	"millrace/workers/motion"
)

// footageSeconds is the length of a clip, sent repeatedly.
var footageSeconds = 4

// footage is video as from a camera: moving shapes with noise, 30 frames per second, no frame depends on a later
// frame.
type footage struct {
	codec         string
	width, height int
	path          string // of a Matroska file
}

func (f footage) name() string {
	return fmt.Sprintf("%s %dx%d", codecNames[f.codec], f.width, f.height)
}

var codecNames = map[string]string{"h264": "H.264", "vp8": "VP8", "vp9": "VP9", "av1": "AV1"}

// encoders are ffmpeg's arguments. The bit rates are typical of cameras, 2 Mbit/s at 720p.
var encoders = map[string][]string{
	"h264": {"-c:v", "libx264", "-preset", "veryfast", "-bf", "0", "-sc_threshold", "0"},
	"vp8":  {"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-auto-alt-ref", "0"},
	"vp9":  {"-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0"},
	"av1":  {"-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-lag-in-frames", "0"},
}

// footageOf renders and encodes a clip, once in a run.
func (b *bench) footageOf(codec string, w, h int) (footage, error) {
	f := footage{codec, w, h, filepath.Join(b.dir, fmt.Sprintf("%s-%dx%d.mkv", codec, w, h))}
	if _, err := os.Stat(f.path); err == nil {
		return f, nil
	}
	scene := filepath.Join(b.dir, fmt.Sprintf("%dx%d", w, h))
	drawn := filepath.Join(scene, "motion.mp4")
	if _, err := os.Stat(drawn); err != nil {
		_, err := draw.Write(context.Background(), draw.Settings{Width: w, Height: h, Seconds: float64(footageSeconds),
			FPS: videoRate, Seed: 1}, "ffmpeg", scene, io.Discard)
		if err != nil {
			return f, err
		}
	}
	rate := fmt.Sprintf("%dk", 2000*w*h/(1280*720))
	args := append([]string{"-i", drawn, "-vf", "noise=alls=6:allf=t"}, encoders[codec]...)
	args = append(args, "-b:v", rate, "-maxrate", rate, "-bufsize", rate, "-g", fmt.Sprint(footageSeconds*videoRate),
		"-pix_fmt", "yuv420p", f.path)
	return f, ffmpeg(args...)
}

// ffmpeg runs the program ffmpeg without output.
func ffmpeg(args ...string) error {
	said, err := exec.Command("ffmpeg", append([]string{"-nostdin", "-hide_banner", "-loglevel", "error"},
		args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ffmpeg %v: %w: %s", args, err, bytes.TrimSpace(said))
	}
	return nil
}

// chunks returns the clip frame by frame. Only the first is a key frame.
func (f footage) chunks() (list [][]byte, err error) {
	path := f.path + ".chunks"
	args := []string{"-y", "-i", f.path, "-c", "copy"}
	if f.codec == "h264" {
		args = append(args, "-bsf:v", "h264_mp4toannexb,h264_metadata=aud=insert", "-f", "h264", path)
	} else {
		args = append(args, "-f", "ivf", path)
	}
	if err := ffmpeg(args...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if f.codec == "h264" {
		delimiter := []byte{0, 0, 0, 1, 9} // in front of each picture
		for _, unit := range bytes.Split(text, delimiter)[1:] {
			list = append(list, append(bytes.Clone(delimiter), unit...))
		}
	} else {
		const fileHeader, frameHeader = 32, 12 // of IVF
		for text = text[min(fileHeader, len(text)):]; len(text) >= frameHeader; {
			size := min(int(binary.LittleEndian.Uint32(text)), len(text)-frameHeader)
			list = append(list, text[frameHeader:frameHeader+size])
			text = text[frameHeader+size:]
		}
	}
	if len(list) != footageSeconds*videoRate {
		return nil, fmt.Errorf("%s has %d frames, want %d", f.path, len(list), footageSeconds*videoRate)
	}
	return list, nil
}

// decode returns ffmpeg's processor time in ms for decoding a frame with one thread, in several processes at the same
// time. The time of starting ffmpeg is left out.
func (f footage) decode(copies int, paced bool, frames int) (float64, error) {
	used := func(frames int) (time.Duration, error) {
		args := []string{"-nostdin", "-hide_banner", "-loglevel", "error", "-stream_loop", "-1"}
		if paced {
			args = append(args, "-re")
		}
		cmd := exec.Command("ffmpeg", append(args, "-threads", "1", "-i", f.path, "-frames:v", fmt.Sprint(frames),
			"-f", "null", "-")...)
		if said, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%v: %w: %s", cmd, err, bytes.TrimSpace(said))
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
	}
	start, err := used(1)
	if err != nil {
		return 0, err
	}
	each, errs := make([]time.Duration, copies), make([]error, copies)
	var wg sync.WaitGroup
	for i := range copies {
		wg.Go(func() { each[i], errs[i] = used(frames + 1) })
	}
	wg.Wait()
	sum := time.Duration(0)
	for _, d := range each {
		sum += d - start
	}
	return sum.Seconds() * 1000 / float64(copies*frames), errors.Join(errs...)
}

// pictures returns the clip's frames as raw pictures of a size, by ffmpeg's name of the
// format.
func (f footage) pictures(format string, w, h, size int) (list [][]byte, err error) {
	cmd := exec.Command("ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-i", f.path,
		"-vf", fmt.Sprintf("scale=%d:%d", w, h), "-pix_fmt", format, "-f", "rawvideo", "pipe:1")
	all, err := cmd.Output()
	if err != nil || len(all) < size {
		return nil, fmt.Errorf("%v: %d bytes: %w", cmd, len(all), err)
	}
	for ; len(all) >= size; all = all[size:] {
		list = append(list, all[:size])
	}
	return list, nil
}

// forMotion returns the clip's frames in the format of the motion model.
func (f footage) forMotion() ([][]byte, error) {
	d, err := motion.NewDetector(motion.Settings{})
	if err != nil {
		return nil, err
	}
	set := d.Settings()
	return f.pictures("gray", set.Width, set.Height, set.Width*set.Height)
}

// motionAlone returns the processor time in ms of the motion model for a frame, called directly on pictures in its
// format. rate is the frames per second of all cameras; 0 = as fast as possible.
func motionAlone(pictures [][]byte, cameras int, rate float64, d time.Duration) (float64, error) {
	var frames [][]byte
	for _, p := range pictures {
		for range cameras {
			frames = append(frames, p)
		}
	}
	return bareCPU(frames, rate, d, func() (do func([]byte) error, end func(), err error) {
		detectors := make([]*motion.Detector, cameras)
		for i := range detectors {
			if detectors[i], err = motion.NewDetector(motion.Settings{}); err != nil {
				return nil, nil, err
			}
		}
		n := 0
		return func(gray []byte) error {
			detectors[n%cameras].Detect(gray)
			n++
			return nil
		}, func() {}, nil
	})
}
