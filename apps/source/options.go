package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/go-units"
	"golang.org/x/crypto/ssh"

	"millrace/internal/textfile"
)

// EnvToken is the variable with the password or token for HTTP.
const EnvToken = "MILLRACE_GIT_TOKEN"

// Defaults of Options.
const (
	DefaultTimeout = 10 * time.Minute
	DefaultMaxSize = 1 << 30
)

// Options are the credentials and limits of Fetch. The zero value has no credentials, allows encrypted connections
// only, and has the default limits.
type Options struct {
	Keys       []Key    // for SSH
	Agent      string   // socket of an SSH agent, such as the value of SSH_AUTH_SOCK; "" = none
	KnownHosts []string // files with keys of hosts; nil = KnownHostsFiles

	Token string // password or token for HTTP, sent to the host of the repository only

	AllowHTTP    bool // also without encryption to other machines
	AllowPrivate bool // a remote repository may lead to files and private addresses: submodules, redirects

	CA *x509.CertPool // authorities of servers over https; nil = those of the system

	Idle    time.Duration // a connection that carries no byte for this time ends; 0 = never
	Timeout time.Duration // for everything; 0 = DefaultTimeout
	MaxSize int64         // bytes received, and bytes in the folder; 0 = DefaultMaxSize

	// Progress is called often, by one goroutine at a time, with the bytes received of a repository; nil = never.
	Progress func(repository string, received int64)
}

// Key is a key for SSH, kept in memory.
type Key struct {
	Name   string // for messages
	signer ssh.Signer
}

// ParseKey reads a private key. name is for messages. The error never has a part of the key.
func ParseKey(name string, pem []byte) (Key, error) {
	signer, err := ssh.ParsePrivateKey(pem)
	var encrypted *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &encrypted):
		return Key{}, fmt.Errorf("the key %s is encrypted with a passphrase: add it to an agent (ssh-add), which "+
			"SSH_AUTH_SOCK names", name)
	case err != nil:
		return Key{}, fmt.Errorf("the key %s is not a private key in the form of OpenSSH or PEM", name)
	}
	return Key{Name: name, signer: signer}, nil
}

// maxKey is the largest key, in bytes.
const maxKey = 64 << 10

// ReadKey reads a private key from a file, which only the owner may read.
func ReadKey(file string) (Key, error) {
	st, err := os.Stat(file)
	if err != nil {
		return Key{}, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return Key{}, fmt.Errorf("%s can be read by other users of this machine: chmod 600 %s", file, file)
	}
	pem, err := textfile.Read(file, maxKey)
	if err != nil {
		return Key{}, err
	}
	return ParseKey(file, pem)
}

// EnvKey reads a key from a variable of the environment: spec is NAME:VARIABLE.
func EnvKey(spec string, lookup func(string) (string, bool)) (Key, error) {
	name, variable, ok := strings.Cut(spec, ":")
	if !ok || name == "" || variable == "" || strings.ContainsAny(variable, "= \n") || len(spec) > 200 {
		return Key{}, errors.New("want NAME:VARIABLE, with the name of a variable that has the private key")
	}
	pem, ok := lookup(variable)
	if !ok || strings.TrimSpace(pem) == "" {
		return Key{}, fmt.Errorf("the variable %s for the key %s is not set: set it to the private key, such as "+
			"export %s=\"$(cat ~/.ssh/id_ed25519)\"", variable, name, variable)
	}
	return ParseKey(name, []byte(strings.TrimSpace(pem)+"\n"))
}

// KnownHostsFiles returns the files of this user and machine with keys of hosts.
func KnownHostsFiles() (files []string) {
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".ssh", "known_hosts"))
	}
	return append(files, "/etc/ssh/ssh_known_hosts")
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxSize <= 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.KnownHosts == nil {
		o.KnownHosts = KnownHostsFiles()
	}
	return o
}

// present returns the files that exist.
func present(files []string) (out []string, err error) {
	for _, file := range files {
		switch _, err := os.Stat(file); {
		case err == nil:
			out = append(out, file)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}

// FromEnv returns Options with the credentials of the environment: EnvToken, the agent, and the keys of EnvKey. Their
// variables are removed from the environment, so that child processes do not get them.
func FromEnv(keys []string) (o Options, err error) {
	o.Token, o.Agent = os.Getenv(EnvToken), os.Getenv("SSH_AUTH_SOCK")
	for _, spec := range keys {
		k, err := EnvKey(spec, os.LookupEnv)
		if err != nil {
			return o, err
		}
		o.Keys = append(o.Keys, k)
	}
	_ = errors.Join(os.Unsetenv(EnvToken), os.Unsetenv("SSH_AUTH_SOCK"))
	for _, spec := range keys {
		_, variable, _ := strings.Cut(spec, ":")
		_ = os.Unsetenv(variable)
	}
	return o, nil
}

// ParseSize reads a number of bytes such as 500MB or 2GiB.
func ParseSize(text string) (int64, error) {
	n, err := units.RAMInBytes(text)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is not a size such as 500MiB or 2GiB", text)
	}
	return n, nil
}
