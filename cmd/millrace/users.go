package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"millrace/ingest/access"
)

const usersExamples = `  millrace users add users.yaml eva --role infer --role watch
  printf '%s\n' "$PASSWORD" | millrace users passwd users.yaml eva
  millrace users add users.yaml camera-7 --no-password
  millrace users list users.yaml
  millrace users remove users.yaml eva
  millrace serve --auth-users users.yaml --model find=motion`

func usersCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "users",
		Short: "Add, list and remove the users of a file, and set their passwords",
		Long: `Add, list and remove the users of a file, and set their passwords. A server reads the file with the setting auth.users, and a running server takes a change
within a second of the next request. The file has a hash of each password (Argon2id). A user logs in at /session_login, or in the console. A user without
a password is named by a client certificate, a token of a provider or a module, and gets the roles of the file.`,
		Example: usersExamples,
	}
	c.AddCommand(usersAddCommand(), usersPasswdCommand(), usersListCommand(), usersRemoveCommand())
	return c
}

// usersOf returns the users of a file. A missing file has no users where the file may be missing.
func usersOf(path string, missing bool) ([]access.User, error) {
	users, err := access.ReadUsers(path)
	if missing && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("FILE: %w", err)
	}
	return users, nil
}

// readPassword reads a password: twice from a terminal, without echo, otherwise a line of standard input.
func readPassword(c *cobra.Command) (password string, err error) {
	if file, ok := c.InOrStdin().(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		var typed [2]string
		for i, prompt := range []string{"Password: ", "Again: "} {
			fmt.Fprint(c.ErrOrStderr(), prompt)
			text, err := term.ReadPassword(int(file.Fd()))
			fmt.Fprintln(c.ErrOrStderr())
			if err != nil {
				return "", err
			}
			typed[i] = string(text)
		}
		if typed[0] != typed[1] {
			return "", errors.New("the passwords differ")
		}
		password = typed[0]
	} else {
		password, err = bufio.NewReader(io.LimitReader(c.InOrStdin(), 2*access.MaxPassword)).ReadString('\n')
		if err != nil && (err != io.EOF || password == "") {
			return "", errors.New("no password: write it as a line to standard input")
		}
		password = strings.TrimRight(password, "\r\n")
	}
	if len(password) < 8 || len(password) > access.MaxPassword {
		return "", fmt.Errorf("the password has %d bytes: want 8 to %d", len(password), access.MaxPassword)
	}
	return password, nil
}

func usersAddCommand() *cobra.Command {
	var grant grantFlags
	var none bool
	c := &cobra.Command{
		Use:   "add FILE NAME",
		Short: "Add a user, with a password from standard input",
		Long: "Add a user to a file. A missing file is created. The password is asked for, or read from standard " +
			"input.",
		Example: "  millrace users add users.yaml eva --role infer --role watch\n  millrace users add users.yaml " +
			"camera-7 --no-password",
		Args: wrongUsage(cobra.ExactArgs(2)),
	}
	grant.define(c, "user")
	c.Flags().BoolVar(&none, "no-password", false,
		"the user has none: a certificate, a token or a module names the user")
	c.RunE = func(c *cobra.Command, args []string) error {
		g, err := grant.grant(time.Now())
		if err != nil {
			return err
		}
		u := access.User{Name: args[1], Grant: g}
		if err := u.Check(); err != nil {
			return usagef("NAME: %v", err)
		}
		unlock, err := access.Lock(args[0])
		if err != nil {
			return fmt.Errorf("FILE: %w", err)
		}
		defer unlock()
		users, err := usersOf(args[0], true)
		if err != nil {
			return err
		}
		if _, there := access.WithoutUser(users, u.Name); there {
			return usagef("NAME: %s is in the file: millrace users passwd sets a password, remove removes the user",
				u.Name)
		}
		if !none {
			password, err := readPassword(c)
			if err != nil {
				return err
			}
			u.Password = access.HashPassword(password)
		}
		if err := access.WriteUsers(args[0], append(users, u)); err != nil {
			return fmt.Errorf("FILE: %w", err)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s added\n", u.Name)
		return err
	}
	return c
}

func usersPasswdCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "passwd FILE NAME",
		Short:   "Set the password of a user, from standard input",
		Example: "  millrace users passwd users.yaml eva",
		Args:    wrongUsage(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			unlock, err := access.Lock(args[0])
			if err != nil {
				return fmt.Errorf("FILE: %w", err)
			}
			defer unlock()
			users, err := usersOf(args[0], false)
			if err != nil {
				return err
			}
			for i := range users {
				if users[i].Name != args[1] {
					continue
				}
				password, err := readPassword(c)
				if err != nil {
					return err
				}
				users[i].Password = access.HashPassword(password)
				if err := access.WriteUsers(args[0], users); err != nil {
					return fmt.Errorf("FILE: %w", err)
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), "password set")
				return err
			}
			return fmt.Errorf("%s has no user %q", args[0], args[1])
		},
	}
}

func usersListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list FILE",
		Short:   "List the users of a file",
		Example: "  millrace users list users.yaml\n  millrace users list users.yaml --json",
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		users, err := usersOf(args[0], false)
		if err != nil {
			return err
		}
		if asJSON {
			type row struct {
				access.User
				Password bool `json:"password"` // whether there is one
			}
			rows := make([]row, len(users))
			for i, u := range users {
				rows[i] = row{u, u.Password != ""}
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(rows)
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tPASSWORD\tROLES\tMODELS\tQUOTAS\tEXPIRES")
		for _, u := range users {
			password := "set"
			if u.Password == "" {
				password = "none"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", u.Name, password, grantColumns(u.Grant))
		}
		return w.Flush()
	}
	return c
}

func usersRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove FILE NAME",
		Short:   "Remove a user; the user's sessions end with the next request",
		Example: "  millrace users remove users.yaml eva",
		Args:    wrongUsage(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			unlock, err := access.Lock(args[0])
			if err != nil {
				return fmt.Errorf("FILE: %w", err)
			}
			defer unlock()
			users, err := usersOf(args[0], false)
			if err != nil {
				return err
			}
			kept, removed := access.WithoutUser(users, args[1])
			if !removed {
				return fmt.Errorf("%s has no user %q", args[0], args[1])
			}
			if err := access.WriteUsers(args[0], kept); err != nil {
				return fmt.Errorf("FILE: %w", err)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s removed\n", args[1])
			return err
		},
	}
}
