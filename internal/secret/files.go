package secret

import (
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// names are the names of files and folders that usually have passwords or private keys.
var names = regexp.MustCompile(`^(\.env(\..*)?|\.envrc|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc|` +
	`\.htpasswd|\.ssh|\.gnupg|\.aws|\.kube|id_(rsa|dsa|ecdsa|ed25519)(_sk)?)$`)

// IsFile reports whether a file or folder usually has passwords, or is a private key.
func IsFile(name string, mode fs.FileMode) bool {
	switch ext := path.Ext(name); {
	case names.MatchString(filepath.Base(name)):
		return ext != ".example" && ext != ".sample" && ext != ".template" // of .env
	case mode.IsRegular() && (ext == ".pem" || ext == ".key"):
		text, err := head(name)
		return err == nil && strings.Contains(text, "PRIVATE KEY-----")
	}
	return false
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
func head(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 256))
	return string(text), err
}
