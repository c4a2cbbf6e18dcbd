// Package modelurl owns the addresses of models and of model repositories on other machines:
//
//	git+https://HOST/PATH{@REF}#path/in/repository   also git+ssh, git+file
//	s3://BUCKET/PATH{#path/in/folder}
//	https://HOST/PATH#sha256=HEX{/path/in/archive}
//	oci://REGISTRY/NAME{:TAG|@sha256:HEX}#path/in/artifact
//
// The package only parses text. The package must not know how a source is fetched, and imports nothing of Millrace.
package modelurl

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scheme is the way to a source.
type Scheme string

// The schemes.
const (
	Git  Scheme = "git"
	S3   Scheme = "s3"
	HTTP Scheme = "https" // also http to this machine
	OCI  Scheme = "oci"
)

// URL is the address of a source.
type URL struct {
	Scheme Scheme
	// Base is the address without the part behind #: of Git the repository with the reference, without git+; of S3
	// BUCKET/PATH; of OCI the reference of the image.
	Base   string
	Path   string // the file or folder inside the source, with slashes; "" = the source itself
	Digest string // SHA-256 of the file of HTTP, in lower case
}

// maxText is the greatest length of an address, in bytes.
const maxText = 4096

var (
	digestForm = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)
	bucketForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
)

// files are the endings of files that an address of HTTP must name with a digest. Other addresses of HTTP without a
// digest are inference servers.
var files = []string{".onnx", ".py", ".zip", ".tar", ".tar.gz", ".tgz"}

// Is reports whether text has the form of an address of a source. The address may be wrong.
func Is(text string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return false
	}
	switch scheme = strings.ToLower(scheme); scheme {
	case "s3", "oci":
		return true
	case "http", "https":
		if strings.Contains(rest, "#") {
			return true
		}
		rest, _, _ = strings.Cut(strings.ToLower(rest), "?")
		_, inPath, _ := strings.Cut(rest, "/")
		for _, ending := range files {
			if strings.HasSuffix(inPath, ending) {
				return true
			}
		}
		return false
	}
	return strings.HasPrefix(scheme, "git+")
}

// Parse reads an address. Errors never have a password.
func Parse(text string) (URL, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	base, inside, hasInside := strings.Cut(rest, "#")
	switch {
	case len(text) > maxText:
		return URL{}, fmt.Errorf("has %d bytes: at most %d are allowed", len(text), maxText)
	case !utf8.ValidString(text), strings.ContainsFunc(text, unicode.IsControl), strings.Contains(text, " "):
		return URL{}, errors.New("has a control character, a space or invalid UTF-8")
	case !ok:
		return URL{}, errors.New("is not an address: want git+https://, s3://, https:// or oci://")
	case hasInside && inside == "":
		return URL{}, errors.New("ends in #: leave # out, or add what stands behind it")
	case strings.Contains(inside, "#"):
		return URL{}, errors.New("has more than one #")
	}
	u := URL{Base: base}
	var err error
	switch scheme = strings.ToLower(scheme); {
	case strings.HasPrefix(scheme, "git+"):
		err = u.git(strings.TrimPrefix(scheme, "git+"))
	case scheme == "s3":
		err = u.s3()
	case scheme == "oci":
		err = u.oci()
	case scheme == "https" || scheme == "http":
		inside, err = u.http(scheme, inside)
	default:
		err = errors.New("is not an address: want git+https://, s3://, https:// or oci://")
	}
	if err == nil && inside != "" {
		u.Path, err = cleanPath(inside)
	}
	if err != nil {
		return URL{}, err
	}
	return u, nil
}

// cleanPath checks the path of a file or folder inside a source.
func cleanPath(text string) (string, error) {
	switch clean := path.Clean(text); {
	case strings.Contains(text, `\`):
		return "", fmt.Errorf(`the path %q has a \: write /`, text)
	case path.IsAbs(text), !fs.ValidPath(clean), clean == ".":
		return "", fmt.Errorf("the path %q leads out of the source: write a path without .. from the top of the "+
			"source", text)
	default:
		return clean, nil
	}
}

// host checks the host in front of the path, and the user in front of the host.
func host(text string, users bool) error {
	at, _, _ := strings.Cut(text, "/")
	user, name, hasUser := cutLast(at, "@")
	if !hasUser {
		name = at
	}
	switch {
	case hasUser && strings.Contains(user, ":"):
		return errors.New("has a password: leave the password out, and see model_sources.tokens")
	case hasUser && (!users || user == ""):
		return errors.New("has a user name: leave the user name out, and see model_sources.tokens")
	case name == "" || strings.HasPrefix(name, ":"):
		return errors.New("has no host")
	case strings.HasPrefix(name, "-") || strings.HasPrefix(user, "-"):
		return errors.New("has a host or user that begins with -")
	}
	return nil
}

func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

func (u *URL) git(over string) error {
	switch u.Scheme = Git; {
	case over != "https" && over != "http" && over != "ssh" && over != "file":
		return fmt.Errorf("git+%.16q is not a way to a repository: want git+https://, git+ssh:// or git+file://", over)
	case strings.ContainsAny(u.Base, "?|"):
		return errors.New("has a ? or |, which addresses of repositories do not have")
	case over == "file" && !strings.HasPrefix(u.Base, "/"):
		return errors.New("names no absolute path: write git+file:/// and the path")
	}
	if over != "file" {
		if err := host(u.Base, true); err != nil {
			return err
		}
		if _, inPath, _ := strings.Cut(u.Base, "/"); inPath == "" {
			return errors.New("has no path of a repository")
		}
		if err := plain(over, u.Base); err != nil {
			return err
		}
	}
	u.Base = over + "://" + u.Base
	return nil
}

// plain refuses connections without encryption to other machines.
func plain(scheme, base string) error {
	if scheme != "http" {
		return nil
	}
	at, _, _ := strings.Cut(base, "/")
	_, at, found := cutLast("@"+at, "@")
	v, err := url.Parse("http://" + at)
	if !found || err != nil {
		return errors.New("is not a URL")
	}
	name := v.Hostname()
	if a, err := netip.ParseAddr(name); err == nil && a.Unmap().IsLoopback() || strings.EqualFold(name, "localhost") {
		return nil
	}
	return errors.New("is not encrypted: write https://")
}

func (u *URL) s3() error {
	u.Scheme = S3
	bucket, key, _ := strings.Cut(u.Base, "/")
	key = strings.TrimSuffix(key, "/")
	switch {
	case strings.Contains(bucket, "@"):
		return errors.New("has a user or password: the key of S3 is in tasks.s3.access_key and tasks.s3.secret_key")
	case !bucketForm.MatchString(bucket):
		return errors.New("has no name of a bucket: want s3://BUCKET/PATH")
	case key != "" && !fs.ValidPath(key) || strings.Contains(key, `\`):
		return fmt.Errorf("has the path %q, whose elements are empty, . or ..: want s3://BUCKET/PATH", key)
	}
	return nil
}

func (u *URL) oci() error {
	u.Scheme = OCI
	if strings.ContainsAny(u.Base, "?") || strings.Contains(u.Base, "://") {
		return errors.New("has a ? or ://, which references of images do not have")
	}
	if _, name, _ := strings.Cut(u.Base, "/"); name == "" {
		return errors.New("has no name of an image: want oci://REGISTRY/NAME:TAG")
	}
	return host(u.Base, false)
}

// http reads what stands behind #: sha256=HEX{/path}. http returns the path.
func (u *URL) http(scheme, inside string) (string, error) {
	u.Scheme = HTTP
	if err := host(u.Base, false); err != nil {
		return "", err
	}
	v, err := url.Parse(scheme + "://" + u.Base)
	if err != nil || v.Hostname() == "" || strings.HasSuffix(v.Path, "/") || v.Path == "" {
		return "", errors.New("names no file: want https://HOST/PATH/model.onnx#sha256=HEX")
	}
	if name := path.Base(v.Path); strings.HasPrefix(name, ".") || strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || r == '\\' || r == utf8.RuneError
	}) {
		return "", fmt.Errorf("%q is not the name of a file", name)
	}
	if err := plain(scheme, u.Base); err != nil {
		return "", err
	}
	digest, ok := strings.CutPrefix(inside, "sha256=")
	digest, inside, hasPath := strings.Cut(digest, "/")
	switch {
	case !ok || !digestForm.MatchString(digest):
		return "", errors.New("has no digest: add #sha256= and the 64 digits that sha256sum prints for the file")
	case hasPath && inside == "":
		return "", errors.New("ends in /: add the path in the archive, or leave / out")
	}
	u.Base, u.Digest = v.String(), strings.ToLower(digest)
	return inside, nil
}

// File returns the name of the file that the address names; "" = the address names a folder or an artifact.
func (u URL) File() string {
	switch {
	case u.Path != "":
		return path.Base(u.Path)
	case u.Scheme == S3 && strings.Contains(u.Base, "/") && !strings.HasSuffix(u.Base, "/"):
		return path.Base(u.Base)
	case u.Scheme == HTTP && !u.IsArchive():
		if v, err := url.Parse(u.Base); err == nil {
			return path.Base(v.Path)
		}
	}
	return ""
}

// IsArchive reports whether the file of HTTP is an archive to unpack.
func (u URL) IsArchive() bool {
	v, err := url.Parse(u.Base)
	if u.Scheme != HTTP || err != nil {
		return false
	}
	name := strings.ToLower(v.Path)
	for _, ending := range []string{".zip", ".tar", ".tar.gz", ".tgz"} {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return false
}

// Source returns the address without the path inside the source, for messages and as the key of the source: user names
// of HTTP, which may be tokens, and queries, which may have signatures, are ***.
func (u URL) Source() string {
	switch u.Scheme {
	case Git:
		scheme, rest, _ := strings.Cut(u.Base, "://")
		at, inPath, _ := strings.Cut(rest, "/")
		if user, name, found := cutLast(at, "@"); found && (scheme != "ssh" || strings.Contains(user, ":")) {
			at = "***@" + name
		}
		return "git+" + scheme + "://" + at + "/" + inPath
	case HTTP:
		base, _, hasQuery := strings.Cut(u.Base, "?")
		if hasQuery {
			base += "?***"
		}
		return base + "#sha256=" + u.Digest
	case OCI, S3:
		return string(u.Scheme) + "://" + u.Base
	}
	return ""
}

// String returns the address for messages, see Source.
func (u URL) String() string {
	switch {
	case u.Path == "":
		return u.Source()
	case u.Scheme == HTTP:
		return u.Source() + "/" + u.Path
	}
	return u.Source() + "#" + u.Path
}

// Mask returns text for messages: the address without credentials, or *** for a wrong address.
func Mask(text string) string {
	u, err := Parse(text)
	if err != nil {
		scheme, _, _ := strings.Cut(text, "://")
		return scheme + "://***"
	}
	return u.String()
}
