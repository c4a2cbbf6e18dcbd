package confine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SystemFiles returns the files read by any program and its libraries on this machine: folders of the system's
// packages (these contain no secrets), certificates, and devices.
func SystemFiles() []string {
	files := []string{
		"/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/etc/ld.so.cache",
		"/etc/ld.so.preload",
		"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem",
		"/etc/pki/ca-trust/extracted", "/etc/crypto-policies", "/etc/gnutls",
		"/dev/zero", "/dev/random", "/dev/urandom", "/sys/devices/system/cpu",
	}
	for _, name := range []string{"LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		files = append(files, strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ':' || r == ' ' })...)
	}
	return files
}

// ResolverFiles returns the files read for looking names up.
func ResolverFiles() []string {
	return []string{
		"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services",
		"/etc/protocols",
		"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
	}
}

// programFiles returns the files needed by programs with the code of models besides SystemFiles: software outside the
// system's packages, the packages of the user and of PYTHONPATH, descriptions of the machine, and settings for all
// users. In /proc a process sees only public data of other processes: Landlock refuses their variables and memory.
func programFiles() []string {
	files := []string{
		"/sbin", "/opt", "/proc", "/sys", "/dev/full",
		"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone", "/etc/mime.types",
		"/etc/fonts", "/etc/OpenCL", "/etc/vulkan",
	}
	python, _ := filepath.Glob("/etc/python3*") // for Debian's sitecustomize
	files = append(files, python...)
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".local", "lib"))
	}
	for _, dir := range filepath.SplitList(os.Getenv("PYTHONPATH")) {
		if filepath.IsAbs(dir) {
			files = append(files, dir)
		}
	}
	return files
}

// devices returns the devices of GPUs. CUDA needs /proc to name its threads, or does not start. Because a program can
// write in /proc with its user's rights, root's programs do not get /proc.
func devices() []string {
	files := []string{"/dev/dri", "/dev/kfd"}
	nvidia, _ := filepath.Glob("/dev/nvidia*")
	files = append(files, nvidia...)
	if slices.Contains(nvidia, "/dev/nvidiactl") && os.Geteuid() != 0 {
		files = append(files, "/proc")
	}
	return files
}
