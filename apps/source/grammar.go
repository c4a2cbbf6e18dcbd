// Package source owns the addresses of applications, REPO{@BRANCH|@SHA}|path/to/config.yaml, and fetches a repository
// by Git. Package source must not know what an application does with the files.
package source

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"

	"millrace/internal/outbound"
)

// Kind is the way to a repository.
type Kind string

// The kinds of repositories.
const (
	Folder Kind = "folder" // a folder, used in place
	File   Kind = "file"   // a repository on this machine, file:///PATH
	HTTP   Kind = "http"   // https://HOST/PATH or http://HOST/PATH
	SSH    Kind = "ssh"    // ssh://USER@HOST/PATH or USER@HOST:PATH
)

// Source is the address of an application.
type Source struct {
	Kind Kind
	Repo string // the repository as written, without the reference
	Ref  string // a branch, a tag, a full name such as refs/heads/main, or a commit; "" = the default branch
	File string // path of the configuration file inside the repository, with slashes; "" = a default name

	url  *url.URL // of File, HTTP and SSH; never with a password
	path string   // of Folder and File: the path on this machine
}

// maxText is the greatest length of an address, in bytes.
const maxText = 4096

// wanted is the end of errors about the form of an address.
const wanted = "want REPO{@BRANCH|@SHA}|path/to/config.yaml, with REPO as https://HOST/PATH, ssh://USER@HOST/PATH, " +
	"USER@HOST:PATH, file:///PATH, or a folder"

// IsRemote reports whether text names a repository or a file inside a folder: text has the form of an address of
// another kind than a plain path.
func IsRemote(text string) bool {
	return strings.Contains(text, "|") || strings.Contains(text, "://") || isSCP(text)
}

// isSCP reports whether text begins with USER@HOST: without a slash in front of the colon.
func isSCP(text string) bool {
	at := strings.IndexByte(text, '@')
	return at > 0 && !strings.ContainsAny(text[:at], "/:[") && strings.IndexByte(hostEnd(text[at+1:]), ':') == 0
}

// hostEnd returns text after its host: a name, or an address in brackets.
func hostEnd(text string) string {
	if strings.HasPrefix(text, "[") {
		if end := strings.IndexByte(text, ']'); end > 0 {
			return text[end+1:]
		}
		return ""
	}
	if end := strings.IndexAny(text, ":/"); end > 0 {
		return text[end:]
	}
	return ""
}

// Parse reads an address. An @ separates the repository from the reference when the @ is behind the host, and behind
// ".git" or else inside an element of the path: the first @ counts, so that names of branches may contain @ and /. An @
// that belongs to the path of an URL is written %40. A folder has no reference. Errors never contain a password.
func Parse(text string) (s Source, err error) {
	repo, file, hasFile := strings.Cut(text, "|")
	switch {
	case len(text) > maxText:
		return s, fmt.Errorf("has %d bytes: at most %d are allowed", len(text), maxText)
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		return s, errors.New("has a control character")
	case repo == "":
		return s, errors.New("has no repository: " + wanted)
	case hasFile && file == "":
		return s, errors.New("ends in |: leave | out for the default configuration file, or add the path of the file")
	}
	if hasFile {
		if s.File, err = cleanFile(file); err != nil {
			return Source{}, err
		}
	}
	switch scheme, _, isURL := strings.Cut(repo, "://"); {
	case isURL:
		err = s.parseURL(strings.ToLower(scheme), repo)
	case isSCP(repo):
		err = s.parseSCP(repo)
	default:
		s.Kind, s.Repo, s.path = Folder, repo, repo
	}
	if err != nil {
		return Source{}, err
	}
	if s.Kind != Folder {
		if _, err := s.nameOf(); err != nil {
			return Source{}, err
		}
	}
	return s, nil
}

// cleanFile checks the path of a configuration file.
func cleanFile(file string) (string, error) {
	switch clean := path.Clean(file); {
	case strings.Contains(file, "|"):
		return "", errors.New("has more than one |: " + wanted)
	case strings.ContainsAny(file, `\`):
		return "", fmt.Errorf(`the path %q of the configuration file has a \: write /`, file)
	case path.IsAbs(file), !fs.ValidPath(clean), clean == ".":
		return "", fmt.Errorf("the path %q of the configuration file leads out of the repository: write a path from "+
			"the top folder of the repository, without .. in the path", file)
	case strings.EqualFold(strings.SplitN(clean, "/", 2)[0], ".git"):
		return "", fmt.Errorf("the path %q of the configuration file is inside .git", file)
	default:
		return clean, nil
	}
}

func (s *Source) parseURL(scheme, repo string) error {
	if strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz+") != "" {
		return fmt.Errorf("%s: %q is not a way to a repository: %s", Mask(repo), scheme, wanted)
	}
	rest := repo[len(scheme)+len("://"):]
	host, inPath, _ := strings.Cut(rest, "/")
	inPath, ref, err := cutRef(inPath)
	if err != nil {
		return err
	}
	u, err := url.Parse(scheme + "://" + host + "/" + inPath)
	if err != nil {
		return errors.New("is not a URL that can be read: " + wanted) // the error of url has the password
	}
	if _, has := u.User.Password(); has {
		return fmt.Errorf("%s has a password, which every user of this machine can read in the list of processes: "+
			"set the password as %s, and leave it out of the address", Mask(repo), EnvToken)
	}
	switch {
	case u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(rest, "?#"):
		return fmt.Errorf("%s has a ? or #, which addresses of repositories do not have", Mask(repo))
	case scheme == "file" && u.Host != "" && u.Host != "localhost":
		return fmt.Errorf("%s names the host %s: write file:/// and an absolute path", Mask(repo), u.Host)
	case scheme != "file" && u.Hostname() == "":
		return fmt.Errorf("%s has no host: %s", Mask(repo), wanted)
	case u.Port() != "" && !isPort(u.Port()):
		return fmt.Errorf("%s: %q is not a port", Mask(repo), u.Port())
	case strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.User.Username(), "-"):
		return fmt.Errorf("%s: a host and a user do not begin with -", Mask(repo))
	}
	switch scheme {
	case "https", "http":
		s.Kind = HTTP
		if u.User != nil && u.User.Username() == "" {
			return fmt.Errorf("%s has an @ without a user name", Mask(repo))
		}
	case "ssh", "git+ssh", "ssh+git":
		s.Kind, u.Scheme = SSH, "ssh"
	case "file":
		s.Kind, s.path, u.Host = File, filepath.FromSlash(u.Path), ""
	default:
		return fmt.Errorf("%s: %q is not a way to a repository: %s", Mask(repo), scheme, wanted)
	}
	if strings.ContainsRune(u.Path, 0) {
		return errors.New("has a control character")
	}
	s.url, s.Repo, s.Ref = u, scheme+"://"+host+"/"+inPath, ref
	return nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func (s *Source) parseSCP(repo string) error {
	user, rest, _ := strings.Cut(repo, "@")
	after := hostEnd(rest)
	host := strings.TrimSuffix(rest, after)
	inPath, ref, err := cutRef(after[1:])
	if err != nil {
		return err
	}
	bare := strings.Trim(host, "[]")
	if bare != host {
		if _, err := netip.ParseAddr(bare); err != nil {
			return fmt.Errorf("%q is not an address of a host", host)
		}
	}
	switch {
	case host == "" || inPath == "":
		return fmt.Errorf("%q has no host or no path: %s", repo, wanted)
	case strings.HasPrefix(user, "-") || strings.HasPrefix(host, "-"):
		return fmt.Errorf("%q: a host and a user do not begin with -", repo)
	case strings.HasPrefix(inPath, "-"): // an option of git-upload-pack on the host
		return fmt.Errorf("%q: a path does not begin with -: write USER@HOST:./%s", repo, inPath)
	case strings.ContainsAny(user+host, "\"%<>?#\\^{} "):
		return fmt.Errorf("%q is not the name of a host or user", user+"@"+host)
	}
	// the path of USER@HOST:PATH is relative to the home folder, that of ssh:// is absolute: path holds the first form
	s.Kind, s.Repo, s.Ref, s.path = SSH, user+"@"+host+":"+inPath, ref, inPath
	s.url = &url.URL{Scheme: "ssh", User: url.User(user), Host: host, Path: "/" + strings.TrimPrefix(inPath, "/")}
	return nil
}

// cutRef splits the path of a repository from the reference behind it.
func cutRef(text string) (repo, ref string, err error) {
	at := strings.Index(text, ".git@")
	if at >= 0 {
		at += len(".git")
	} else if !strings.HasSuffix(text, ".git") {
		for i := 1; i < len(text) && at < 0; i++ {
			if text[i] == '@' && text[i-1] != '/' {
				at = i
			}
		}
	}
	if at < 0 {
		return text, "", nil
	}
	if ref = text[at+1:]; ref == "" {
		return "", "", errors.New("ends in @: leave @ out for the default branch, or add a branch, a tag or a commit")
	}
	return text[:at], ref, checkRef(ref)
}

// checkRef checks a name of a branch or tag by the rules of Git, and a commit.
func checkRef(ref string) error {
	wrong := func(why string) error { return fmt.Errorf("%q is not a branch, tag or commit: %s", ref, why) }
	switch {
	case ref == "@" || strings.Contains(ref, "@{"):
		return wrong("names are not @ and do not contain @{")
	case strings.ContainsAny(ref, " ~^:?*[\\\x7f"):
		return wrong(`names do not contain a space, ~, ^, :, ?, *, [ or \`)
	case strings.Contains(ref, ".."):
		return wrong("names do not contain ..")
	case strings.HasPrefix(ref, "-") || strings.HasSuffix(ref, "."):
		return wrong("names do not begin with - or end in a point")
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return wrong("the parts between slashes are not empty, do not begin with a point and do not end in .lock")
		}
	}
	return nil
}

// Name returns the name of the folder that a clone has: the last element of the path without .git.
func (s Source) Name() string {
	if s.Kind == Folder {
		if abs, err := filepath.Abs(s.path); err == nil {
			return filepath.Base(abs)
		}
	}
	name, _ := s.nameOf()
	return name
}

func (s Source) nameOf() (string, error) {
	clean := strings.TrimRight(s.url.Path, "/")
	if rest, ok := strings.CutSuffix(clean, "/.git"); ok { // the repository inside a work tree
		clean = rest
	}
	name := strings.TrimSuffix(clean[strings.LastIndexByte(clean, '/')+1:], ".git")
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `\:`) || strings.HasPrefix(name, "-") ||
		strings.IndexFunc(name, unicode.IsControl) >= 0 || len(name) > 200 {
		return "", fmt.Errorf("%s: the last element of the path is not the name of a repository", Mask(s.Repo))
	}
	return name, nil
}

// IsCommit reports whether the reference is a commit with all digits, which names the same files for ever.
func (s Source) IsCommit() bool { return len(s.Ref) == fullSHA && plumbing.IsHash(s.Ref) }

// Host returns the host of HTTP, as HOST:PORT and as HOST, "" for others.
func (s Source) Host() (hostPort, host string) {
	if s.Kind != HTTP {
		return "", ""
	}
	return outbound.HostPort(s.url), s.url.Hostname()
}

// Path returns the path on this machine of a Folder or File, "" for others.
func (s Source) Path() string {
	if s.Kind == SSH || s.Kind == HTTP {
		return ""
	}
	return s.path
}

// Address returns the repository without the reference and the file, for messages and files: user names of HTTP
// addresses, which may be tokens, are ***.
func (s Source) Address() string { return Mask(s.Repo) }

// String returns the address for messages and files, see Address.
func (s Source) String() string {
	text := s.Address()
	if s.Ref != "" {
		text += "@" + s.Ref
	}
	if s.File != "" {
		text += "|" + s.File
	}
	return text
}

// Mask replaces credentials in an URL by ***: the user and the password of HTTP addresses, the password of others.
func Mask(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	host := rest
	if end := strings.IndexAny(rest, "/?#|"); end >= 0 {
		host = rest[:end]
	}
	at := strings.LastIndexByte(host, '@')
	if at < 0 {
		return text
	}
	user, _, hasPassword := strings.Cut(host[:at], ":")
	switch {
	case hasPassword || !strings.Contains(strings.ToLower(scheme), "ssh"):
		user = "***"
	}
	return scheme + "://" + user + rest[at:]
}
