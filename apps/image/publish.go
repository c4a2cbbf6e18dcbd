package image

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Options of a command line, as errors name them.
const (
	FlagReference = "--image"
	FlagUser      = "--registry-user"
	FlagPassword  = "--registry-password" // the name of a variable
	FlagCA        = "--registry-ca"
	FlagPlainHTTP = "--registry-plain-http"
)

// RegistryOptions say how to reach a registry. The zero value uses TLS with the authorities of the system, and the
// passwords of `docker login` and `podman login`.
type RegistryOptions struct {
	User             string
	PasswordVariable string // name of the environment variable with the password of User, or with a token
	Password         string // the value of PasswordVariable, if the caller has removed the variable
	CA               string // file with further certificate authorities in PEM
	PlainHTTP        bool   // allow HTTP without TLS; always allowed to a loopback address
	Progress         func(Progress)
}

// ForBase returns the options for the registry of a base image: user, password and HTTP without TLS are for the
// registry of the published image alone.
func (o RegistryOptions) ForBase(base, published string) RegistryOptions {
	of, err := name.ParseReference(base)
	to, toErr := name.ParseReference(published)
	if err != nil || toErr != nil || of.Context().RegistryStr() != to.Context().RegistryStr() {
		o.User, o.PasswordVariable, o.Password, o.PlainHTTP = "", "", "", false
	}
	return o
}

func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// Publish pushes an image to a registry under a reference, such as registry.example.com/team/greet:v1, and returns
// the reference by digest. Layers that the registry has are not sent.
func Publish(ctx context.Context, img *Image, reference string, o RegistryOptions) (string, error) {
	ref, options, err := o.remote(ctx, reference, true)
	if err != nil {
		return "", err
	}
	updates, done := make(chan v1.Update, 64), make(chan struct{})
	go func() { // ends when remote.Write closes updates
		defer close(done)
		for u := range updates {
			if o.Progress != nil && u.Error == nil {
				o.Progress(Progress{Step: "publish", Done: u.Complete, Total: u.Total})
			}
		}
	}()
	err = remote.Write(ref, img.image, append(options, remote.WithProgress(updates))...)
	<-done
	if err != nil {
		return "", o.explain(err, ref)
	}
	return ref.Context().Digest(img.Digest).String(), nil
}

// remote returns the parsed reference and the options of a registry. A reference to write to has a registry and a tag.
func (o RegistryOptions) remote(ctx context.Context, reference string, write bool) (name.Reference, []remote.Option,
	error) {
	var ref name.Reference
	var err error
	if write {
		ref, err = name.NewTag(reference, append(o.names(), name.StrictValidation)...)
	} else {
		ref, err = name.ParseReference(reference, o.names()...)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %q is no reference of an image (%w): name registry, repository and tag, "+
			"such as registry.example.com/team/greet:v1", FlagReference, reference, err)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		text, ok, err := textFile(o.CA, 16<<20)
		if err != nil || !ok || !pool.AppendCertsFromPEM(text) {
			return nil, nil, fmt.Errorf("%s: %s has no certificate in PEM (%v)", FlagCA, o.CA, err)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(guard{t, o.PlainHTTP}),
		remote.WithUserAgent("millrace"), remote.WithJobs(2)}
	if o.User == "" && o.PasswordVariable == "" {
		return ref, append(options, remote.WithAuthFromKeychain(authn.DefaultKeychain)), nil
	}
	password := cmp.Or(o.Password, os.Getenv(o.PasswordVariable))
	switch {
	case o.User == "":
		return nil, nil, fmt.Errorf("%s: the password %s is without a user", FlagUser, o.PasswordVariable)
	case o.PasswordVariable == "":
		return nil, nil, fmt.Errorf("%s: name the environment variable with the password of %s", FlagPassword, o.User)
	case password == "":
		return nil, nil, fmt.Errorf("%s: the environment variable %s is empty or not set", FlagPassword,
			o.PasswordVariable)
	}
	return ref, append(options, remote.WithAuth(&authn.Basic{Username: o.User, Password: password})), nil
}

func (o RegistryOptions) names() []name.Option {
	if o.PlainHTTP {
		return []name.Option{name.Insecure}
	}
	return nil
}

// errPlain is the refusal of a request without TLS.
var errPlain = errors.New("a request without TLS was refused")

// guard refuses requests without TLS, except to loopback addresses: the library would fall back to them for private
// addresses, and follow a registry that redirects.
type guard struct {
	next  http.RoundTripper
	plain bool
}

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if host := r.URL.Hostname(); r.URL.Scheme != "https" && !g.plain && host != "localhost" &&
		!net.ParseIP(host).IsLoopback() {
		return nil, fmt.Errorf("%w: %s", errPlain, r.URL.Host)
	}
	return g.next.RoundTrip(r)
}

// explain says what to do about an error of a registry.
func (o RegistryOptions) explain(err error, ref name.Reference) error {
	registry := ref.Context().RegistryStr()
	var answer *transport.Error
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	user := "the user of " + FlagUser
	if o.User == "" {
		user = "the user of docker login or podman login, or none"
	}
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: the certificate of %s is of an unknown authority: name the file with the authority by "+
			"%s (%w)", FlagCA, registry, FlagCA, err)
	case errors.As(err, &host), errors.As(err, &invalid):
		return fmt.Errorf("%s: the certificate of %s is not valid (%w)", FlagReference, registry, err)
	case errors.As(err, &record) && !errors.As(err, &answer), errors.Is(err, errPlain):
		return fmt.Errorf("%s: %s does not offer TLS: with %s, image and password are sent without encryption (%w)",
			FlagPlainHTTP, registry, FlagPlainHTTP, err)
	case errors.As(err, &answer):
		switch answer.StatusCode {
		case http.StatusUnauthorized:
			return fmt.Errorf("%s: %s refuses %s: check user and password (%s) (%w)", FlagUser, registry, user,
				cmp.Or(o.PasswordVariable, FlagPassword), err)
		case http.StatusForbidden:
			return fmt.Errorf("%s: %s does not allow %s to use %s (%w)", FlagUser, registry, user,
				ref.Context().RepositoryStr(), err)
		case http.StatusNotFound:
			return fmt.Errorf("%s: %s has no repository or image %s, or is no registry: create the repository, or "+
				"correct the reference (%w)", FlagReference, registry, ref.Context().RepositoryStr(), err)
		}
	}
	return fmt.Errorf("%s: %s: %w", FlagReference, registry, err)
}
