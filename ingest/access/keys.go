package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/internal/role"
	"millrace/internal/secret"
	"millrace/internal/textfile"
)

// Grant has the rights of an entry's owner.
type Grant struct {
	Roles   []string           `yaml:"roles" json:"roles"`
	Models  []string           `yaml:"models,omitempty" json:"models,omitempty"`  // the only ones, as patterns such as door-*; empty = all
	Quotas  map[string]float64 `yaml:"quotas,omitempty" json:"quotas,omitempty"`  // by name, in place of those of the settings; 0 = any number
	Expires time.Time          `yaml:"expires,omitempty" json:"expires,omitzero"` // zero = never
}

// check returns the roles, or an error.
func (g *Grant) check() (role.Set, error) {
	roles, err := role.Parse(g.Roles)
	if err == nil && roles == 0 {
		err = fmt.Errorf("is empty: want some of %s", strings.Join(role.Names(), ", "))
	}
	if err != nil {
		return 0, fmt.Errorf("roles: %w", err)
	}
	if err := CheckPatterns(g.Models); err != nil {
		return 0, fmt.Errorf("models: %w", err)
	}
	if err := CheckQuotas(g.Quotas); err != nil {
		return 0, err
	}
	return roles, nil
}

// Key is an entry of the file.
type Key struct {
	Name   string `yaml:"name" json:"name"`
	ID     string `yaml:"id" json:"id"`
	SHA256 string `yaml:"sha256" json:"-"` // of the secret, in hexadecimal; the secret has 128 random bits, so that a slow hash is not needed
	Grant  `yaml:",inline"`
}

// keyFile is the content of a file with keys.
type keyFile struct {
	Keys []Key `yaml:"keys"`
}

// A key is keyPrefix, the id, _ and the secret.
const (
	keyPrefix = "mr_"
	idEnd     = len(keyPrefix) + 12
	keyLength = idEnd + 1 + 26
)

// NewKey makes a key. text is the key itself, and is not stored.
func NewKey(name string, g Grant) (k Key, text string) {
	id := make([]byte, 6)
	_, _ = rand.Read(id) // never fails
	k = Key{Name: name, ID: "k" + hex.EncodeToString(id)[1:], Grant: g}
	own := rand.Text()
	k.SHA256 = digest(own)
	return k, keyPrefix + k.ID + "_" + own
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Check returns an error if an entry is wrong.
func (k *Key) Check() error {
	_, err := k.check()
	return err
}

func (k *Key) check() (role.Set, error) {
	if err := CheckName(k.Name); err != nil {
		return 0, fmt.Errorf("name: %w", err)
	}
	switch {
	case len(k.ID) != 12 || k.ID[0] != 'k' || strings.Trim(k.ID[1:], "0123456789abcdef") != "":
		return 0, fmt.Errorf("id: %.20q has not the form of an id: want k and 11 hexadecimal digits", k.ID)
	case len(k.SHA256) != 64 || strings.Trim(k.SHA256, "0123456789abcdef") != "":
		return 0, errors.New("sha256: is not a SHA-256 in hexadecimal")
	}
	return k.Grant.check()
}

// ReadKeys returns the entries of a file. Errors name the entry.
func ReadKeys(path string) ([]Key, error) {
	text, err := textfile.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	return parseKeys(text, path)
}

// parseKeys returns the entries in the text of a file.
func parseKeys(text []byte, path string) ([]Key, error) {
	var f keyFile
	err := parse(text, &f)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f.Keys, nil
}

func (f *keyFile) check() error {
	if len(f.Keys) > maxEntries {
		return fmt.Errorf("keys: has %d entries: want at most %d", len(f.Keys), maxEntries)
	}
	seen := map[string]bool{}
	for i := range f.Keys {
		k := &f.Keys[i]
		if err := k.Check(); err != nil {
			return fmt.Errorf("keys[%d].%w", i, err)
		}
		if seen[k.ID] {
			return fmt.Errorf("keys[%d].id: %s is there twice", i, k.ID)
		}
		seen[k.ID] = true
	}
	return nil
}

// WriteKeys replaces a file. Only the owner may read a new file.
func WriteKeys(path string, keys []Key) error { return writeFile(path, keyFile{keys}) }

// Keys are the keys of a file. Keys reads the file again after a change. Keys is safe for concurrent use.
type Keys struct {
	file *textfile.Watched[map[string]*keyEntry]
}

// keyEntry is an entry in use.
type keyEntry struct {
	sum       [sha256.Size]byte // of a key's secret
	password  string            // its hash; "" = none
	expires   time.Time
	principal *Principal
}

func (k *keyEntry) expired(now time.Time) bool { return !k.expires.IsZero() && !now.Before(k.expires) }

// OpenKeys reads a file. When the file cannot be read again, the keys stay and failed is called with the error; when
// the file can be read again, failed is called with nil.
func OpenKeys(path string, failed func(error)) (*Keys, error) {
	file, err := watch(path, keysByID, failed)
	return &Keys{file}, err
}

func keysByID(text []byte, path string) (map[string]*keyEntry, error) {
	keys, err := parseKeys(text, path)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*keyEntry, len(keys))
	for i := range keys {
		k := &keys[i]
		roles, _ := k.check() // passed at load
		e := &keyEntry{expires: k.Expires, principal: &Principal{Key: "key:" + k.ID, Name: k.Name, Roles: roles,
			Models: k.Models, Quotas: k.Quotas}}
		if _, err := hex.Decode(e.sum[:], []byte(k.SHA256)); err != nil {
			return nil, err
		}
		byID[k.ID] = e
	}
	return byID, nil
}

// Recheck makes the next call look at the file.
func (k *Keys) Recheck() { k.file.Recheck() }

// Authenticate returns the principal of a key; nil = the key is unknown or has expired.
func (k *Keys) Authenticate(text string, now time.Time) (p *Principal, expired bool) {
	e, expired := k.authenticate(text, now)
	if e == nil {
		return nil, expired
	}
	return e.principal, false
}

// authenticate is Authenticate with the entry of the file.
func (k *Keys) authenticate(text string, now time.Time) (e *keyEntry, expired bool) {
	e = k.entry(text, now)
	if e == nil || !secret.HasDigest(text[idEnd+1:], &e.sum) {
		return nil, false
	}
	if e.expired(now) {
		return nil, true
	}
	return e, false
}

// entry returns the present entry with the id in a key, or nil. Each reading of a changed file makes new entries.
func (k *Keys) entry(text string, now time.Time) *keyEntry {
	if len(text) != keyLength || text[:len(keyPrefix)] != keyPrefix || text[idEnd] != '_' {
		return nil
	}
	return k.file.Get(now)[text[len(keyPrefix):idEnd]]
}

// Current returns the present principal of the file with the identity of p, or nil.
func (k *Keys) Current(p *Principal, now time.Time) *Principal {
	e := k.file.Get(now)[strings.TrimPrefix(p.Key, "key:")]
	if e == nil || e.expired(now) {
		return nil
	}
	return e.principal
}

// WithoutKey returns keys without the keys of an id or name, and the number of removed keys.
func WithoutKey(keys []Key, which string) (kept []Key, removed int) {
	kept = slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k.ID == which || k.Name == which })
	return kept, len(keys) - len(kept)
}
