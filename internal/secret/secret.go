// Package secret compares, reads and makes secrets such as keys and passwords. The package owns the only comparison
// of secrets in the program: a test searches the source for others. The package must not know the purpose of a
// secret.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"millrace/internal/textfile"
)

// Equal reports whether two secrets are equal. The time depends only on the lengths: the digests are compared, in
// constant time.
func Equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Same is Equal without digests, and faster. The time depends on the lengths, and on whether the lengths are equal.
func Same(a, b string) bool {
	const most = 64 // bytes at once
	differ := uint64(0)
	for len(a) == len(b) && len(a) > 0 {
		var x, y, z [most]byte
		n := copy(x[:], a)
		a, b = a[n:], b[copy(y[:], b):]
		subtle.XORBytes(z[:], x[:], y[:]) // many bytes with each instruction
		for i := 0; i < most; i += 8 {
			differ |= binary.LittleEndian.Uint64(z[i:])
		}
	}
	return len(a) == len(b) && differ == 0
}

// HasDigest reports whether sum is the SHA-256 of a secret, in constant time.
func HasDigest(text string, sum *[sha256.Size]byte) bool {
	x := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(x[:], sum[:]) == 1
}

// filePrefix begins a setting that names the file with a secret in place of the secret.
const filePrefix = "file:"

// maxFile is the most bytes of a file with a secret.
const maxFile = 64 << 10

// Read returns the secret of a setting: its text, or with file:PATH the contents of the file without the final line
// end.
func Read(setting string) (string, error) {
	path, isFile := strings.CutPrefix(setting, filePrefix)
	if !isFile {
		return setting, nil
	}
	return ReadFile(path)
}

// File returns the file named by a setting in place of a secret, "" = none.
func File(setting string) string {
	path, isFile := strings.CutPrefix(setting, filePrefix)
	if !isFile {
		return ""
	}
	return path
}

// ReadFile returns the contents of a file without the final line end.
func ReadFile(path string) (string, error) {
	text, err := textfile.Read(path, maxFile)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	s := strings.TrimRight(string(text), "\r\n")
	switch {
	case s == "":
		return "", fmt.Errorf("%s is empty", path)
	case strings.ContainsAny(s, "\r\n\x00"):
		return "", errors.New(path + " has more than one line: want the secret alone")
	}
	return s, nil
}
