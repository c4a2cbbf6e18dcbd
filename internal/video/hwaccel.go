package video

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/internal/child"
)

// Values of the setting of hardware decoding. VAAPI and CUDA are ffmpeg's names of methods.
const (
	HardwareAuto = "auto" // the first working method of hardwareMethods
	HardwareNone = "none"
	VAAPI        = "vaapi"
	CUDA         = "cuda"
)

// hardwareMethods are the methods tried for HardwareAuto, in this order.
var hardwareMethods = []string{CUDA, VAAPI}

const (
	// hardwareTimeout bounds the trial of each method: a driver may hang.
	hardwareTimeout = 10 * time.Second
	// hardwarePause is how long new decoders avoid the hardware after a decoder has failed because of the hardware.
	hardwarePause = time.Minute
	// hardwareGrace is how long a hanging ffmpeg may take to react to a signal before its device is blamed.
	hardwareGrace = time.Second
)

// trialPicture is one key frame of H.264, 320 x 240 pixels of luma 126.
//
//go:embed hwaccel.h264
var trialPicture []byte

const trialWidth, trialHeight, trialLuma = 320, 240, 126

// HardwareFound is the method of decoding videos, and of encoding the video of watchers.
type HardwareFound struct {
	Use     string   // VAAPI or CUDA; "" is software
	Missing []string // methods tried without success, each with the reason
	Encode  string   // the method of encoding, as Use; set by Hardware.Find
}

// String describes the methods in one line for the log.
func (f HardwareFound) String() string {
	with := func(method string) string {
		if method == "" {
			return "in software"
		}
		return "with " + method
	}
	use := []string{"videos are decoded " + with(f.Use)}
	if f.Encode != "" {
		use = append(use, "watched videos are encoded "+with(f.Encode))
	}
	return strings.Join(append(use, f.Missing...), "; ")
}

// FindHardware tries the methods allowed by the setting, by decoding a picture, until a method works. Each trial
// takes at most 10 s. ffmpeg is the program; "" means "ffmpeg" in PATH.
func FindHardware(ctx context.Context, setting, ffmpeg string) (f HardwareFound) {
	if ffmpeg == "" {
		ffmpeg = "ffmpeg"
	}
	methods := []string{setting}
	switch setting {
	case HardwareAuto:
		methods = hardwareMethods
	case HardwareNone, "":
		return f
	}
	listed, err := hardwareListed(ctx, ffmpeg)
	for _, m := range methods {
		why := err
		switch {
		case err != nil:
		case !slices.Contains(listed, m):
			why = errors.New("this ffmpeg was built without it (ffmpeg -hwaccels)")
		default:
			why = tryHardware(ctx, ffmpeg, m)
		}
		if why == nil {
			f.Use = m
			return f
		}
		f.Missing = append(f.Missing, m+" cannot be used: "+why.Error())
	}
	return f
}

// hardwareListed returns the methods supported by this build of ffmpeg.
func hardwareListed(ctx context.Context, ffmpeg string) ([]string, error) {
	out, err := runBounded(ctx, nil, ffmpeg, "-hide_banner", "-hwaccels")
	return strings.Fields(string(out)), err
}

// tryHardware decodes a picture with a method. Frames must come from the device: ffmpeg must not fall back to
// software.
func tryHardware(ctx context.Context, ffmpeg, method string) error {
	out, err := runBounded(ctx, trialPicture, ffmpeg, "-hide_banner", "-loglevel", "warning", "-protocol_whitelist",
		"pipe",
		"-hwaccel", method, "-hwaccel_output_format", method, "-threads", "1", "-f", "h264", "-i", "pipe:0",
		"-vf", "hwdownload,format=nv12", "-frames:v", "1", "-f", "rawvideo", "pipe:1")
	if err != nil {
		if method == VAAPI && strings.Contains(err.Error(), "Device creation failed") {
			return cmp.Or(checkRenderNodes("/dev/dri"), err)
		}
		return err
	}
	if len(out) != NV12.size(trialWidth, trialHeight) || out[0] < trialLuma-2 || out[0] > trialLuma+2 {
		return errors.New("it decoded a picture wrongly")
	}
	return nil
}

// checkRenderNodes returns an error if a folder has no VAAPI device, or none is accessible.
func checkRenderNodes(dir string) (err error) {
	nodes, _ := filepath.Glob(filepath.Join(dir, "renderD*"))
	for _, path := range nodes {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_RDWR, 0); err == nil {
			return f.Close()
		}
	}
	if err == nil {
		return fmt.Errorf("there is no %s/renderD*: the kernel has no driver of a GPU (in a container: start it "+
			"with --device /dev/dri)", dir)
	}
	return fmt.Errorf("%w (add the server's user to the group render or video)", err)
}

// runBounded runs a program for at most hardwareTimeout. On failure the error has the beginning of the program's
// standard error, in one line.
func runBounded(parent context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(parent, hardwareTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.Env, cmd.WaitDelay = Environment(), time.Second
	err := cmd.Run()
	switch {
	case parent.Err() != nil:
		return nil, parent.Err()
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %v", hardwareTimeout)
	case err != nil && stderr.Len() > 0:
		return nil, errors.New(firstLines(stderr.String()))
	}
	return stdout.Bytes(), err
}

// firstLines returns the first two lines of ffmpeg's messages, where the cause is, without the reporting components.
func firstLines(messages string) string {
	var lines []string
	for l := range strings.Lines(messages) {
		if l = strings.TrimSpace(component.ReplaceAllString(l, "")); l != "" && len(lines) < 2 {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, ", ")
}

// Hardware is the device for decoding videos. A nil Hardware decodes in software. Its methods may be called by any
// goroutine.
type Hardware struct {
	setting string
	failure func(err error)
	now     func() time.Time
	grace   time.Duration
	found   chan struct{} // closed when use and encode are known
	use     string
	encode  string

	mu             sync.Mutex
	paused         time.Time // no new decoder uses the hardware until then
	pausedEncoding time.Time // of encoders
}

// NewHardware returns the hardware of a setting; nil for HardwareNone. The caller must call Find: decoders wait for
// Find. failure is called when a decoder has failed because of the hardware.
func NewHardware(setting string, failure func(err error)) *Hardware {
	if setting == HardwareNone || setting == "" {
		return nil
	}
	return &Hardware{setting: setting, failure: failure, now: time.Now, grace: hardwareGrace,
		found: make(chan struct{})}
}

// Find determines the usable methods. Find may be called once. See FindHardware.
func (h *Hardware) Find(ctx context.Context) HardwareFound {
	f := FindHardware(ctx, h.setting, "")
	f.Encode = findEncoding(ctx, h.setting)
	h.use, h.encode = f.Use, f.Encode
	close(h.found)
	return f
}

// method returns the method of a new decoder, "" for software. method waits for Find or the end of ctx.
func (h *Hardware) method(ctx context.Context) string {
	if h == nil {
		return ""
	}
	select {
	case <-h.found:
	case <-ctx.Done():
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now().Before(h.paused) {
		return ""
	}
	return h.use
}

// hardwareMessages are ffmpeg's messages about a failed device. They count only at the beginning of a message, after
// the names of the reporting components: elsewhere the text may be part of an address.
var hardwareMessages = regexp.MustCompile(`(?m)^(?:\[[^\[\]@]{1,64} @ 0x[0-9a-f]+\] ` +
	`)*(?:\[AVHW(?:Device|Frames)Context @ 0x[0-9a-f]+\] ` +
	`|Device creation failed|Device setup failed|No device available for decoder|Failed to transfer data to output ` +
	`frame` +
	`|(?:\w+->)+\w+\(.*\) failed -> CUDA_ERROR_).*$`)

// fellBack is ffmpeg's message about falling back to software because the device does not decode a codec or profile,
// or has no room: earlier reports of the device are then no reason to end.
const fellBack = "Failed setup for format "

// failed reports, from the warnings, errors and exit of an ffmpeg with a hardware method, whether the device made
// ffmpeg fail. If so, new decoders use software for a while.
func (h *Hardware) failed(method, messages string, red redactor, exit error) bool {
	if method == "" {
		return false
	}
	if i := strings.LastIndex(messages, fellBack); i >= 0 {
		messages = messages[i:]
	}
	why := hardwareMessages.FindString(messages)
	var e *child.ExitError
	switch {
	case why != "":
		why = red.text(why)
	case killedFromOutside(exit) && errors.As(exit, &e): // drivers crash
		why = fmt.Sprintf("ffmpeg was ended by signal %d (%v)", int(e.Signal), e.Signal) +
			joined(lastLines(messages, red))
	default:
		return false
	}
	h.pause(method, why)
	return true
}

// detectHang reports whether an ffmpeg with a hardware method, after a time-out without a frame, hangs in the device's
// driver: a hanging ffmpeg does not end when told to end. An ffmpeg that waits for its source ends at the second
// signal at the latest. After a hang, new decoders use software for a while.
func (h *Hardware) detectHang(method string, p *child.Process) bool {
	if method == "" {
		return false
	}
	if p.Stdin != nil {
		_ = p.Stdin.Close() // ffmpeg may wait for more input
	}
	for range 2 {
		_ = p.Signal(syscall.SIGTERM)
		t := time.NewTimer(h.grace)
		select {
		case <-p.Done():
			t.Stop()
			return false
		case <-t.C:
		}
	}
	h.pause(method, "ffmpeg hangs in it")
	return true
}

// pause makes new decoders use software for a while.
func (h *Hardware) pause(method, why string) {
	h.mu.Lock()
	h.paused = h.now().Add(hardwarePause)
	h.mu.Unlock()
	if h.failure != nil {
		h.failure(fmt.Errorf("%s: %s", method, why))
	}
}

// hardwareArgs are the options of an input decoded with a hardware method. Frames return to the memory of the program
// for scaling.
func hardwareArgs(method string) []string {
	if method == "" {
		return nil
	}
	return []string{"-hwaccel", method}
}
