package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/docker/go-units"

	"millrace/internal/sshclient"
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
	Keys       []sshclient.Key // for SSH
	Agent      string          // socket of an SSH agent, such as the value of SSH_AUTH_SOCK; "" = none
	KnownHosts []string        // files with keys of hosts; nil = sshclient.KnownHostsFiles

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

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxSize <= 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.KnownHosts == nil {
		o.KnownHosts = sshclient.KnownHostsFiles()
	}
	return o
}

// FromEnv returns Options with the credentials of the environment: EnvToken, the agent, and the keys of
// sshclient.EnvKey. Their variables are removed from the environment, so that child processes do not get them.
func FromEnv(keys []string) (o Options, err error) {
	o.Token, o.Agent = os.Getenv(EnvToken), os.Getenv("SSH_AUTH_SOCK")
	for _, spec := range keys {
		k, err := sshclient.EnvKey(spec, os.LookupEnv)
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
