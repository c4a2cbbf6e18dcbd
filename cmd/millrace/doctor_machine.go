package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"millrace/config"
	"millrace/internal/child"
	"millrace/internal/codec"
	"millrace/internal/confine"
	"millrace/internal/processors"
	"millrace/internal/video"
	"millrace/server"
	"millrace/workers"
)

// processorsUsed says how many processors the server may use.
func processorsUsed() diagnosis {
	usable, all := runtime.GOMAXPROCS(0), runtime.NumCPU()
	if usable < all {
		return diagnosis{"processors", warns, fmt.Sprintf("%d of %d are used", usable, all),
			"raise the CPU limit of the container, or unset GOMAXPROCS, if the server is to have more"}
	}
	return healthyDiagnosis("processors", "%s/%s, %d", runtime.GOOS, runtime.GOARCH, all)
}

// memory compares memory.budget with the memory of the machine and the container.
func (d *doctor) memory() diagnosis {
	const what = "memory"
	limit, where := processors.MemoryLimit()
	budget := d.cfg.Memory.Budget
	switch {
	case limit == 0:
		return healthyDiagnosis(what, "budget %s; the machine does not say how much it has", byteText(budget))
	case budget > limit:
		return diagnosis{what, fails, fmt.Sprintf("memory.budget is %s, and %s has %s", byteText(budget), where,
			byteText(limit)), "set memory.budget to half of it at most, or give the server more"}
	case budget > limit/2:
		return diagnosis{what, warns, fmt.Sprintf("memory.budget is %s of %s of %s; models need memory beside it",
			byteText(budget), byteText(limit), where), "lower memory.budget, or give the server more"}
	}
	return healthyDiagnosis(what, "budget %s of %s of %s", byteText(budget), byteText(limit), where)
}

// openFiles compares the limit of open files with the configured number of connections.
func (d *doctor) openFiles() diagnosis {
	const what, few = "open files", 256
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return diagnosis{what, warns, "the limit cannot be read: " + err.Error(), ""}
	}
	// the runtime raises the soft limit to the hard limit
	have, need := r.Max, uint64(d.cfg.Limits.MaxConnections)+few
	do := fmt.Sprintf("ulimit -n %d before the start, or LimitNOFILE=%d in its systemd unit; or lower "+
		"limits.max_connections", need, need)
	switch {
	case have < few:
		return diagnosis{what, fails, fmt.Sprintf("%d are allowed, and a server needs at least %d", have, few), do}
	case have < need:
		return diagnosis{what, warns, fmt.Sprintf("%d are allowed: fewer than limits.max_connections (%d) need", have,
			d.cfg.Limits.MaxConnections), do}
	case have > math.MaxInt64/2:
		return healthyDiagnosis(what, "no limit")
	}
	return healthyDiagnosis(what, "%d are allowed", have)
}

// notPure says where libraries are built in.
const notPure = "install the archive of the release without pure-go in its name, or in a checkout: "

func turbojpeg() diagnosis {
	if codec.Turbo {
		return healthyDiagnosis("libjpeg-turbo", "built in")
	}
	return diagnosis{"libjpeg-turbo", warns, "is not built in: JPEG pictures take several times as long",
		notPure + "apt-get install libjpeg-dev, make build"}
}

func libwebp() diagnosis {
	if codec.LibWebP {
		return healthyDiagnosis("libwebp", "built in")
	}
	return diagnosis{"libwebp", warns, "is not built in: lossy WebP pictures take two to four times as long",
		notPure + "apt-get install libwebp-dev, make build"}
}

// Features of ffmpeg needed by the sources and clients of a server.
var (
	wantedDecoders = []string{"h264", "hevc", "vp8", "vp9", "av1", "mjpeg", "mpeg4"}
	wantedDemuxers = []string{"rtsp", "hls", "mov", "matroska", "mpegts", "flv", "h264", "ivf", "image2"}
	wantedProtocol = []string{"file", "http", "https", "tcp", "udp", "pipe"}
)

// ffmpegSymptoms checks ffmpeg and its build options.
func ffmpegSymptoms(ctx context.Context) (found []diagnosis) {
	const install = "apt-get install ffmpeg"
	for _, p := range []struct{ name, loss string }{{"ffmpeg",
		"videos and cameras cannot be read, and video of clients cannot be decoded"},
		{"ffprobe", "video files cannot be read"}} {
		line, err := firstLine(ctx, p.name, "-version")
		if err != nil {
			found = append(found, diagnosis{p.name, warns, p.loss + ": " + err.Error(), install})
			continue
		}
		found = append(found, healthyDiagnosis(p.name, "%s", line))
	}
	if found[0].State != healthy {
		return found
	}
	for _, list := range []struct {
		what, option string
		wanted       []string
	}{{"decoders", "-decoders", wantedDecoders}, {"demuxers", "-demuxers", wantedDemuxers},
		{"protocols", "-protocols", wantedProtocol}} {
		has := ffmpegList(ctx, list.option)
		var missing []string
		for _, name := range list.wanted {
			if !has[name] {
				missing = append(missing, name)
			}
		}
		what := "ffmpeg's " + list.what
		if len(missing) > 0 {
			found = append(found, diagnosis{what, warns, "missing: " + strings.Join(missing, ", "),
				"install an ffmpeg that has them: " + install})
			continue
		}
		found = append(found, healthyDiagnosis(what, "%s", strings.Join(list.wanted, ", ")))
	}
	return found
}

// sandbox tries whether ffmpeg can be confined, as the server does where the setting is not off.
func sandbox(ctx context.Context, set string) diagnosis {
	const what = "sandbox of ffmpeg"
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := video.CheckSandbox(ctx)
	switch abi := child.LandlockABI(); {
	case set == config.SandboxOff:
		return diagnosis{what, warns,
			"sandbox is off: ffmpeg, which reads what clients send, can read and write what " +
				"the server can", "unset it"}
	case errors.Is(err, exec.ErrNotFound):
		return healthyDiagnosis(what, "there is no ffmpeg to confine")
	case err != nil && set == config.SandboxRequire:
		return diagnosis{what, fails, "sandbox is require: " + err.Error(), "mend this, or set sandbox to auto"}
	case err != nil:
		return diagnosis{what, warns, err.Error(),
			"use a kernel with Landlock, and an ffmpeg of the system's packages (not a snap), or set sandbox to off"}
	case abi < 4:
		return healthyDiagnosis(what, "files, with Landlock %d; ports of TCP need Linux 6.7", abi)
	default:
		return healthyDiagnosis(what, "files and connections, with Landlock %d", abi)
	}
}

// programs tries whether programs can be confined, as the server does unless confine.programs is off.
func (d *doctor) programs(ctx context.Context) diagnosis {
	const what = "sandbox of programs"
	set := d.cfg.Confine.Programs
	if set == config.SandboxOff {
		return healthyDiagnosis(what,
			"confine.programs is off: models that are programs, and exec sources, can read and "+
				"write what the server can")
	}
	options := workers.ManagerOptions{Log: slog.New(slog.DiscardHandler)}
	err := cmp.Or(child.SandboxError(), server.ConfinePrograms(&d.cfg, &options))
	if err == nil {
		err = options.Programs.Check(ctx)
	}
	switch {
	case err != nil && set == config.SandboxRequire:
		return diagnosis{what, fails, "confine.programs is require: " + err.Error(),
			"mend this, or set confine.programs to auto or off"}
	case err != nil:
		return diagnosis{what, warns, err.Error(), "mend this, or set confine.programs to off"}
	case confine.UnsupportedRestrictions() != "":
		return healthyDiagnosis(what, "with Landlock %d; %s", child.LandlockABI(), confine.UnsupportedRestrictions())
	}
	return healthyDiagnosis(what, "files, network and signals, with Landlock %d", child.LandlockABI())
}

// hardware tries the hardware decoding of videos, like the server at its start.
func hardware(ctx context.Context, set string) diagnosis {
	const what = "hardware decoding"
	f := video.FindHardware(ctx, set, "")
	s := healthyDiagnosis(what, "sources.hwaccel is %s: %s", set, strings.ReplaceAll(f.String(), "; ", "\n"))
	if f.Use == "" && set != video.HardwareAuto && set != video.HardwareNone {
		s.State, s.Do = fails, "install the driver and its library for this user (docs/streams.md, Hardware "+
			"decoding), or set sources.hwaccel to auto or none"
	}
	return s
}

// ffmpegList returns the names listed by ffmpeg for an option. A line has flags and a name, or several names
// separated by commas; a line about a protocol has only a name.
func ffmpegList(ctx context.Context, option string) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "ffmpeg", "-hide_banner", option).Output()
	has := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		for name := range strings.SplitSeq(f[min(1, len(f)-1)], ",") {
			has[name] = true
			if name == "libdav1d" || name == "libaom-av1" {
				has["av1"] = true
			}
		}
	}
	return has
}

func gpus(ctx context.Context) (found []diagnosis) {
	devices, _ := filepath.Glob("/dev/nvidia[0-9]*")
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // a driver may hang
	defer cancel()
	if _, err := exec.LookPath("nvidia-smi"); err == nil {
		out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name,driver_version,memory.total",
			"--format=csv,noheader").Output()
		text := strings.TrimSpace(string(out))
		if err != nil || text == "" {
			found = append(found, diagnosis{"nvidia gpu", warns, "nvidia-smi failed: " + cmp.Or(text, fmt.Sprint(err)),
				"check the driver: dmesg | grep -i nvrm; in a container, start it with --gpus all"})
		} else {
			found = append(found, healthyDiagnosis("nvidia gpu", "%s", text))
		}
	} else if len(devices) > 0 {
		found = append(found, diagnosis{"nvidia gpu", warns, strings.Join(devices, ", ") +
			" is here, and nvidia-smi is not", "install the driver's tools, to see whether it works"})
	}
	if nodes, _ := filepath.Glob("/dev/dri/renderD*"); len(nodes) > 0 {
		s := healthyDiagnosis("render nodes", "%s", strings.Join(nodes, ", "))
		if f, err := os.OpenFile(nodes[0], os.O_RDWR, 0); err != nil {
			s.State, s.Detail, s.Do = warns, err.Error(), "add the server's user to the group render or video"
		} else {
			_ = f.Close()
		}
		found = append(found, s)
	}
	if len(found) == 0 {
		return []diagnosis{healthyDiagnosis("gpu", "none: models run on the processors")}
	}
	return found
}

// portOwner returns " by PROGRAM (process N)" for the program that listens at a TCP address of this machine, or "" if
// unreadable.
func portOwner(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		return ""
	}
	sockets := listeningSockets(n)
	if len(sockets) == 0 {
		return ""
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !slices.Contains(sockets, to) {
			continue
		}
		pid := strings.Split(link, "/")[2]
		name, _ := os.ReadFile("/proc/" + pid + "/comm")
		return fmt.Sprintf(" by %s (process %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// listeningSockets returns the sockets that listen at a port, as link targets of file descriptors.
func listeningSockets(port int) (links []string) {
	const listening = "0A"
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			fields := strings.Fields(s.Text())
			if len(fields) < 10 || fields[3] != listening {
				continue
			}
			_, text, _ := strings.Cut(fields[1], ":")
			if b, err := hex.DecodeString(text); err == nil && len(b) == 2 && int(b[0])<<8|int(b[1]) == port {
				links = append(links, "socket:["+fields[9]+"]")
			}
		}
		_ = f.Close()
	}
	return links
}
