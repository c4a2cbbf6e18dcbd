package secret

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// names are the names of files and folders that usually have passwords or private keys.
var names = regexp.MustCompile(`(?i)^(\.env(\..*)?|\.envrc|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc|` +
	`\.htpasswd|\.ssh|\.gnupg|\.aws|\.kube|\.docker(cfg)?|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.+\.(p12|pfx|jks|ppk))$`)

// key is a private key in PEM, also within a text such as JSON. Programs that only name the first line have no base64
// behind the line.
var key = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----` +
	`([\s"'+,]|\\[rn]|[A-Za-z][A-Za-z-]*: [^\n\\]*)*[A-Za-z0-9+/]{32}`)

// maxSearch is the greatest number of bytes of a file that are searched for a key.
const maxSearch = 1 << 20

// IsFile reports whether a file or folder usually has passwords, or has a private key in PEM.
func IsFile(name string, mode fs.FileMode) bool {
	ext := strings.ToLower(path.Ext(name))
	if names.MatchString(filepath.Base(name)) {
		return ext != ".example" && ext != ".sample" && ext != ".template" // of .env
	}
	if !mode.IsRegular() {
		return false
	}
	text, err := head(name)
	if err != nil || !bytes.Contains(text, []byte("PRIVATE KEY")) { // faster than the expression
		return false
	}
	return (ext == ".pem" || ext == ".key") && bytes.Contains(text, []byte("PRIVATE KEY-----")) || key.Match(text)
}

// IsWithin reports whether IsFile is true for the file name in the folder root, or for a folder on the way there. The
// name has slashes; the file may be missing.
func IsWithin(root, name string) bool {
	for ; name != "." && name != "/"; name = path.Dir(name) {
		file, mode := filepath.Join(root, filepath.FromSlash(name)), fs.FileMode(0)
		if st, err := os.Lstat(file); err == nil {
			mode = st.Mode()
		}
		if IsFile(file, mode) {
			return true
		}
	}
	return false
}

// head returns the first bytes of a file.
func head(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text bytes.Buffer
	if st, err := f.Stat(); err == nil {
		text.Grow(int(min(st.Size(), maxSearch)) + bytes.MinRead)
	}
	_, err = text.ReadFrom(io.LimitReader(f, maxSearch))
	return text.Bytes(), err
}
