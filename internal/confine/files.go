package confine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SystemFiles returns what any program and its libraries read on this machine: folders of the system's packages, which have no
// secrets, certificates, and devices.
func SystemFiles() []string {
	files := []string{
		"/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/etc/ld.so.cache", "/etc/ld.so.preload",
		"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/ca-trust/extracted", "/etc/crypto-policies", "/etc/gnutls",
		"/dev/zero", "/dev/random", "/dev/urandom", "/sys/devices/system/cpu",
	}
	for _, name := range []string{"LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		files = append(files, strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ':' || r == ' ' })...)
	}
	return files
}

// ResolverFiles returns what programs read that look names up.
func ResolverFiles() []string {
	return []string{
		"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols",
		"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
	}
}

// programFiles returns what programs with the code of models need besides SystemFiles: software outside of the system's packages, the
// packages of the user and of PYTHONPATH, what there is of the machine, and settings that are for all. A process sees of another in /proc
// what all users see: Landlock refuses its variables and memory.
func programFiles() []string {
	files := []string{
		"/sbin", "/opt", "/proc", "/sys", "/dev/full",
		"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/fonts", "/etc/OpenCL", "/etc/vulkan",
	}
	python, _ := filepath.Glob("/etc/python3*") // sitecustomize of Debian is there
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

// devices returns the devices of GPUs. CUDA names its threads in /proc, or does not start; there a program can write what its user
// can, which root's must not.
func devices() []string {
	files := []string{"/dev/dri", "/dev/kfd"}
	nvidia, _ := filepath.Glob("/dev/nvidia*")
	files = append(files, nvidia...)
	if slices.Contains(nvidia, "/dev/nvidiactl") && os.Geteuid() != 0 {
		files = append(files, "/proc")
	}
	return files
}
