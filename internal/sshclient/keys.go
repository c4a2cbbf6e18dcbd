package sshclient

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"millrace/internal/textfile"
)

// Key is a key for SSH, kept in memory.
type Key struct {
	Name   string // for messages
	signer ssh.Signer
}

// ParseKey reads a private key. name is for messages. The error never has a part of the key.
func ParseKey(name string, pem []byte) (Key, error) {
	signer, err := ssh.ParsePrivateKey(pem)
	var encrypted *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &encrypted):
		return Key{}, fmt.Errorf("the key %s is encrypted with a passphrase: add it to an agent (ssh-add), which "+
			"SSH_AUTH_SOCK names", name)
	case err != nil:
		return Key{}, fmt.Errorf("the key %s is not a private key in the form of OpenSSH or PEM", name)
	}
	return Key{Name: name, signer: signer}, nil
}

// maxKey is the largest key, in bytes.
const maxKey = 64 << 10

// ReadKey reads a private key from a file, which only the owner may read.
func ReadKey(file string) (Key, error) {
	st, err := os.Stat(file)
	if err != nil {
		return Key{}, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return Key{}, fmt.Errorf("%s can be read by other users of this machine: chmod 600 %s", file, file)
	}
	pem, err := textfile.Read(file, maxKey)
	if err != nil {
		return Key{}, err
	}
	return ParseKey(file, pem)
}

// EnvKey reads a key from a variable of the environment: spec is NAME:VARIABLE.
func EnvKey(spec string, lookup func(string) (string, bool)) (Key, error) {
	name, variable, ok := strings.Cut(spec, ":")
	if !ok || name == "" || variable == "" || strings.ContainsAny(variable, "= \n") || len(spec) > 200 {
		return Key{}, errors.New("want NAME:VARIABLE, with the name of a variable that has the private key")
	}
	pem, ok := lookup(variable)
	if !ok || strings.TrimSpace(pem) == "" {
		return Key{}, fmt.Errorf("the variable %s for the key %s is not set: set it to the private key, such as "+
			"export %s=\"$(cat ~/.ssh/id_ed25519)\"", variable, name, variable)
	}
	return ParseKey(name, []byte(strings.TrimSpace(pem)+"\n"))
}

// KnownHostsFiles returns the files of this user and machine with keys of hosts.
func KnownHostsFiles() (files []string) {
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".ssh", "known_hosts"))
	}
	return append(files, "/etc/ssh/ssh_known_hosts")
}

// present returns the files that exist.
func present(files []string) (out []string, err error) {
	for _, file := range files {
		switch _, err := os.Stat(file); {
		case err == nil:
			out = append(out, file)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}
