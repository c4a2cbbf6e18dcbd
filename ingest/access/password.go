package access

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"

	"millrace/internal/secret"
)

// argonParams are the parameters of Argon2id, as recommended in RFC 9106, section 4, for limited memory.
type argonParams struct {
	memory  uint32 // KiB
	passes  uint32
	threads uint8
}

var recommended = argonParams{memory: 64 << 10, passes: 3, threads: 4}

// The largest parameters of a hash in a file.
const (
	maxHashMemory = 1 << 20 // KiB
	maxPasses     = 32
	maxThreads    = 64
)

const (
	saltBytes = 16
	hashBytes = 32
)

// MaxPassword is the most bytes of a password.
const MaxPassword = 1024

// HashPassword returns the hash of a password in the PHC string form:
// $argon2id$v=19$m=KIB,t=PASSES,p=THREADS$SALT$HASH.
func HashPassword(password string) string { return hashWith(recommended, password) }

func hashWith(h argonParams, password string) string {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	sum := argon2.IDKey([]byte(password), salt, h.passes, h.memory, h.threads, hashBytes)
	b := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.passes, h.threads,
		b.EncodeToString(salt), b.EncodeToString(sum))
}

var errHash = errors.New("is not a hash of a password: millrace users passwd makes one")

// parseHash reads the parts of a hash.
func parseHash(text string) (h argonParams, salt, sum []byte, err error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return h, nil, nil, errHash
	}
	var version int
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return h, nil, nil, errHash
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.threads); err != nil {
		return h, nil, nil, errHash
	}
	if h.memory < 8*uint32(max(h.threads, 1)) || h.memory > maxHashMemory || h.passes < 1 || h.passes > maxPasses ||
		h.threads < 1 || h.threads > maxThreads {
		return h, nil, nil, fmt.Errorf("has m=%d,t=%d,p=%d: want at most %d KiB, %d passes and %d threads", h.memory,
			h.passes, h.threads, maxHashMemory, maxPasses, maxThreads)
	}
	b := base64.RawStdEncoding.Strict()
	if salt, err = b.DecodeString(parts[4]); err != nil || len(salt) < 8 || len(salt) > 64 {
		return h, nil, nil, errHash
	}
	if sum, err = b.DecodeString(parts[5]); err != nil || len(sum) < 16 || len(sum) > 64 {
		return h, nil, nil, errHash
	}
	return h, salt, sum, nil
}

// bytes is the memory used by hashing.
func (h argonParams) bytes() int64 { return int64(h.memory) << 10 }

// verify reports whether a password matches a parsed hash.
func (h argonParams) verify(password string, salt, sum []byte) bool {
	got := argon2.IDKey([]byte(password), salt, h.passes, h.memory, h.threads, uint32(len(sum)))
	return secret.Equal(string(got), string(sum))
}
