package deploy

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// Target is a host, and the user there.
type Target struct {
	User string // "" = the user of this process
	Host string
	Port string // of SSH
}

// String returns the target as a user writes it.
func (t Target) String() string {
	text := t.Host
	if strings.Contains(text, ":") {
		text = "[" + text + "]"
	}
	if t.Port != "22" {
		text += ":" + t.Port
	}
	if t.User != "" {
		text = t.User + "@" + text
	}
	return text
}

func (t Target) address() string { return net.JoinHostPort(t.Host, t.Port) }

var (
	userForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9._-]*$`)
	hostForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)
)

// ParseTargets reads [USER@]HOST[:PORT][,...].
func ParseTargets(text string) (all []Target, err error) {
	seen := map[Target]bool{}
	for one := range strings.SplitSeq(text, ",") {
		t, err := parseTarget(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if seen[t] {
			return nil, fmt.Errorf("%s is named twice", t)
		}
		seen[t], all = true, append(all, t)
	}
	return all, nil
}

func parseTarget(text string) (t Target, err error) {
	t.Port = "22"
	rest := text
	if user, host, ok := strings.Cut(text, "@"); ok {
		if t.User, rest = user, host; !userForm.MatchString(user) {
			return t, fmt.Errorf("%q is no user in %q: want [USER@]HOST[:PORT]", user, text)
		}
	}
	t.Host = rest
	if strings.HasPrefix(rest, "[") || strings.Count(rest, ":") == 1 {
		if strings.HasSuffix(rest, "]") {
			t.Host = strings.Trim(rest, "[]")
		} else if t.Host, t.Port, err = net.SplitHostPort(rest); err != nil {
			return t, fmt.Errorf("%q: %w: want [USER@]HOST[:PORT]", text, err)
		}
	}
	if n, err := strconv.Atoi(t.Port); err != nil || n < 1 || n > 65535 {
		return t, fmt.Errorf("%q: %q is no port of 1 to 65535", text, t.Port)
	}
	if !hostForm.MatchString(t.Host) && net.ParseIP(t.Host) == nil {
		return t, fmt.Errorf("%q is no host: want [USER@]HOST[:PORT]", text)
	}
	return t, nil
}

// Secret is a variable of the application's environment on the hosts.
type Secret struct {
	Name  string
	Value []byte
}

var variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// check refuses a secret that no environment can have.
func (s Secret) check() error {
	switch {
	case !variableForm.MatchString(s.Name):
		return fmt.Errorf("%q is no name of a variable", s.Name)
	case len(s.Value) == 0:
		return fmt.Errorf("the secret %s is empty", s.Name)
	case strings.ContainsRune(string(s.Value), 0) || len(s.Value) > 64<<10:
		return fmt.Errorf("the secret %s has more than 64 KiB or a zero byte, which no variable can have", s.Name)
	}
	return nil
}

// CheckSecrets refuses secrets that no environment can have.
func CheckSecrets(all []Secret) error {
	var errs []error
	seen := map[string]bool{}
	for _, s := range all {
		errs = append(errs, s.check())
		if seen[s.Name] {
			errs = append(errs, fmt.Errorf("the secret %s is given twice", s.Name))
		}
		seen[s.Name] = true
	}
	return errors.Join(errs...)
}
