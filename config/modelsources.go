package config

import (
	"errors"
	"strings"
	"time"

	"millrace/internal/modelurl"
	"millrace/stream/coded"
)

// ModelSources configures the models and repositories that are named by an address.
type ModelSources struct {
	Cache   string        `yaml:"cache" path:"file" unset:"millrace/models in the user's cache folder" example:"/var/cache/models" advanced:"yes" help:"the folder of fetched models and repositories (docs/repository.md). Several servers may share the folder"`
	Size    int64         `yaml:"cache_size" default:"16GiB" min:"1MiB" unit:"bytes" advanced:"yes" help:"most bytes of model_sources.cache: the least recently used sources are removed first, but no source in use"`
	MaxSize int64         `yaml:"max_size" default:"4GiB" min:"1" unit:"bytes" advanced:"yes" help:"most bytes of one source"`
	Timeout time.Duration `yaml:"timeout" default:"30m" min:"1ms" max:"24h" advanced:"yes" help:"longest time to fetch a source"`
	Offline bool          `yaml:"offline" advanced:"yes" help:"connect to no source: serve what the cache has"`
	Tokens  []string      `yaml:"tokens" example:"robot@registry.example.org=REGISTRY_TOKEN" advanced:"yes" help:"variables with passwords and tokens for hosts of sources: [USER@]HOST[:PORT]=VARIABLE. Without USER a bearer token. The only Git host takes MILLRACE_GIT_TOKEN"`
	SSHKey  string        `yaml:"ssh_key" path:"file" example:"id_ed25519" unset:"the keys of the SSH agent" advanced:"yes" help:"file with the private key for git+ssh"`
	CA      string        `yaml:"ca" path:"file" example:"sources.pem" unset:"the authorities of this machine" advanced:"yes" help:"PEM file with further authorities of the certificates of sources, except for S3 (tasks.s3.ca)"`

	AllowPrivate bool `yaml:"allow_private" advanced:"yes" help:"let a host of a source lead to private addresses, by redirects or submodules; the host itself may have any address"`
}

// ModelToken is an entry of model_sources.tokens.
type ModelToken struct{ User, Host, Variable string }

// TokenList returns the entries of tokens, without wrong ones.
func (m ModelSources) TokenList() (list []ModelToken) {
	for _, text := range m.Tokens {
		if t, ok := tokenOf(text); ok {
			list = append(list, t)
		}
	}
	return list
}

func tokenOf(text string) (t ModelToken, ok bool) {
	host, variable, ok := strings.Cut(text, "=")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		t.User, host = host[:i], host[i+1:]
		ok = ok && t.User != ""
	}
	t.Host, t.Variable = host, variable
	return t, ok && host != "" && !strings.ContainsAny(host, "/ ") && variable != "" &&
		!strings.ContainsFunc(variable, func(r rune) bool {
			return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		})
}

func (m ModelSources) validate() error {
	var errs []error
	for _, text := range m.Tokens {
		if _, ok := tokenOf(text); !ok { // the text may be a token
			errs = append(errs, coded.Errorf(coded.InvalidArgument, "model_sources.tokens",
				"has an entry that is not [USER@]HOST=VARIABLE, with the name of the variable that has the token"))
		}
	}
	return errors.Join(errs...)
}

// Addresses returns the addresses of models and of the repository.
func (c *Config) Addresses() (list []string) {
	if modelurl.Is(c.Repository.Dir) {
		list = append(list, c.Repository.Dir)
	}
	for _, m := range c.Models {
		if modelurl.Is(m.Source) {
			list = append(list, m.Source)
		}
	}
	return list
}

// usesS3 reports whether a model or the repository is on the server of tasks.s3.
func (c *Config) usesS3() bool {
	for _, a := range c.Addresses() {
		if u, err := modelurl.Parse(a); err == nil && u.Scheme == modelurl.S3 {
			return true
		}
	}
	return false
}
