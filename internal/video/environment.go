package video

import (
	"os"
	"slices"
	"strings"
)

// passedOn are the variables of this process passed to ffmpeg: search paths of programs and libraries, certificates,
// proxies, and device drivers. Other variables may hold secrets, and FFREPORT would write a file. A "*" at the end of
// a name matches any ending.
var passedOn = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "no_proxy",
	"LIBVA_*", "VDPAU_*", "CUDA_*", "NVIDIA_*", "DRI_PRIME",
}

// Environment returns the environment of the server's ffmpeg processes: the permitted variables of this process,
// variables for plain English messages, and more.
func Environment(more ...string) []string {
	more = append([]string{"AV_LOG_FORCE_NOCOLOR=1", "LC_ALL=C"}, more...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		// Of two equal names the first would be used.
		return !isPassedOn(name) || slices.ContainsFunc(more, func(m string) bool {
			return strings.HasPrefix(m, name+"=")
		})
	})
	return append(env, more...)
}

func isPassedOn(name string) bool {
	return slices.ContainsFunc(passedOn, func(p string) bool {
		begin, open := strings.CutSuffix(p, "*")
		return name == p || open && strings.HasPrefix(name, begin)
	})
}
