package access

import (
	"context"
	"fmt"
	"slices"
	"time"

	"millrace/internal/processors"
	"millrace/internal/role"
	"millrace/internal/textfile"
	"millrace/stream"
)

// User is an entry of the file with users.
type User struct {
	Name string `yaml:"name" json:"name"`
	// Password is the hash of the password, see HashPassword; "" = a certificate or a token names the user.
	Password string `yaml:"password,omitempty" json:"-"`
	Grant    `yaml:",inline"`
}

// userFile is the content of a file with users.
type userFile struct {
	Users []User `yaml:"users"`
}

// Check returns an error if an entry is wrong.
func (u *User) Check() error {
	_, err := u.check()
	return err
}

func (u *User) check() (role.Set, error) {
	if err := CheckName(u.Name); err != nil {
		return 0, fmt.Errorf("name: %w", err)
	}
	if u.Password != "" {
		if _, _, _, err := parseHash(u.Password); err != nil {
			return 0, fmt.Errorf("password: %w", err)
		}
	}
	return u.Grant.check()
}

// ReadUsers returns the entries of a file. Errors name the entry.
func ReadUsers(path string) ([]User, error) {
	text, err := textfile.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	return parseUsers(text, path)
}

// parseUsers returns the entries in the text of a file.
func parseUsers(text []byte, path string) ([]User, error) {
	var f userFile
	err := parse(text, &f)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f.Users, nil
}

func (f *userFile) check() error {
	if len(f.Users) > maxEntries {
		return fmt.Errorf("users: has %d entries: want at most %d", len(f.Users), maxEntries)
	}
	seen := map[string]bool{}
	for i := range f.Users {
		u := &f.Users[i]
		if err := u.Check(); err != nil {
			return fmt.Errorf("users[%d].%w", i, err)
		}
		if seen[u.Name] {
			return fmt.Errorf("users[%d].name: %s is there twice", i, u.Name)
		}
		seen[u.Name] = true
	}
	return nil
}

// WriteUsers replaces a file. Only the owner may read a new file.
func WriteUsers(path string, users []User) error { return writeFile(path, userFile{users}) }

// WithoutUser returns users without the user of a name, and whether there was such a user.
func WithoutUser(users []User, name string) (kept []User, removed bool) {
	kept = slices.DeleteFunc(slices.Clone(users), func(u User) bool { return u.Name == name })
	return kept, len(kept) < len(users)
}

// Users are the users of a file. Users reads the file again after a change. Users is safe for concurrent use.
type Users struct {
	file  *textfile.Watched[map[string]*keyEntry]
	turns chan struct{}
	long  *processors.Turns // of long computations
}

// maxHashing is the most passwords hashed at once.
const maxHashing = 2

// hashingAtOnce returns the number of passwords hashed at once. A hash runs in four threads on as many processors, so
// that a machine with few processors hashes a single password at a time.
func hashingAtOnce(processors int) int { return max(1, min(maxHashing, processors/2)) }

// OpenUsers reads a file. When the file cannot be read again, the users stay and failed is called with the error;
// when the file can be read again, failed is called with nil.
func OpenUsers(path string, long *processors.Turns, failed func(error)) (*Users, error) {
	file, err := watch(path, usersByName, failed)
	return &Users{file, make(chan struct{}, hashingAtOnce(long.Count())), long}, err
}

func usersByName(text []byte, path string) (map[string]*keyEntry, error) {
	users, err := parseUsers(text, path)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*keyEntry, len(users))
	for i := range users {
		u := &users[i]
		roles, _ := u.check() // passed at load
		byName[u.Name] = &keyEntry{password: u.Password, expires: u.Expires,
			principal: &Principal{Key: "user:" + u.Name,
				Name: u.Name, Roles: roles, Models: u.Models, Quotas: u.Quotas, Entry: u.Password}}
	}
	return byName, nil
}

// Recheck makes the next call look at the file.
func (u *Users) Recheck() { u.file.Recheck() }

// absent is the hash for unknown names, so that the answer takes as long as for a user.
var absent = hashWith(argonParams{memory: 8, passes: 1, threads: 1}, "")

// Authenticate returns the principal with a name and a password, or nil. Authenticate charges the memory for hashing
// with charge, and gives the memory back with refund.
func (u *Users) Authenticate(ctx context.Context, name, password string, now time.Time,
	charge func(bytes int64) (refund func(), err error)) (*Principal, error) {
	if len(password) > MaxPassword {
		return nil, nil
	}
	e := u.file.Get(now)[name]
	there := e != nil && e.password != "" && !e.expired(now)
	h := recommended
	_, salt, sum, _ := parseHash(absent)
	if there {
		var err error
		if h, salt, sum, err = parseHash(e.password); err != nil {
			return nil, err // cannot be: the file was checked
		}
	}
	select {
	case u.turns <- struct{}{}:
		defer func() { <-u.turns }()
	case <-ctx.Done():
		return nil, stream.Errorf(stream.Timeout, "", "many passwords are being checked: try again later")
	}
	defer u.long.Occupy()() // long computations give way
	refund, err := charge(h.bytes())
	if err != nil {
		return nil, err
	}
	defer refund()
	if !h.verify(password, salt, sum) || !there {
		return nil, nil
	}
	return e.principal, nil
}

// HasPassword reports whether a name has an entry with a password.
func (u *Users) HasPassword(name string, now time.Time) bool {
	e := u.file.Get(now)[name]
	return e != nil && e.password != ""
}

// Current returns the user of a name as the file has the user now, and whether there is an entry. An expired entry
// has no user.
func (u *Users) Current(name string, now time.Time) (p *Principal, there bool) {
	e := u.file.Get(now)[name]
	if e == nil {
		return nil, false
	}
	if e.expired(now) {
		return nil, true
	}
	return e.principal, true
}
