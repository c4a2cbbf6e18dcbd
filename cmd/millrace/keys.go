package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/internal/setting"
	"millrace/stream"
)

const keysExamples = `  millrace keys add keys.yaml camera-1 --role infer
  millrace keys add keys.yaml grafana --role watch --role metrics --expires 2160h
  millrace keys list keys.yaml
  millrace keys add keys.yaml door --role infer --model 'door-*'
  millrace keys add keys.yaml public --quota requests=20 --quota bytes=2MiB --quota streams=4
  millrace keys revoke keys.yaml camera-1
  millrace serve --auth-keys keys.yaml --model find=motion`

func keysCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Add, list and revoke the API keys of a file",
		Long: `Add, list and revoke the API keys of a file. A server reads the file with the setting auth.keys. A running server takes a change within a second of the
next request. The file has the SHA-256 of each key, not the key. The roles are infer (run inferences, read models), watch (read the state, streams and
statistics), manage (load models, change streams and settings) and metrics. With --model, a key is for models of these names only.`,
		Example: keysExamples,
	}
	c.AddCommand(keysAddCommand(), keysListCommand(), keysRevokeCommand())
	return c
}

// keysOf returns the keys of a file. A missing file has no keys where the file may be missing.
func keysOf(path string, missing bool) ([]access.Key, error) {
	keys, err := access.ReadKeys(path)
	if missing && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("FILE: %w", err)
	}
	return keys, nil
}

func keysAddCommand() *cobra.Command {
	var grant grantFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "add FILE NAME",
		Short: "Add a key, and print the key once",
		Long:  "Add a key to a file, and print the key. A missing file is created. The key cannot be printed again.",
		Example: "  millrace keys add keys.yaml camera-1 --role infer\n  millrace keys add keys.yaml deploy --role " +
			"manage --expires 720h --json",
		Args: wrongUsage(cobra.ExactArgs(2)),
	}
	grant.define(c, "key")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		g, err := grant.grant(time.Now())
		if err != nil {
			return err
		}
		unlock, err := access.Lock(args[0])
		if err != nil {
			return fmt.Errorf("FILE: %w", err)
		}
		defer unlock()
		keys, err := keysOf(args[0], true)
		if err != nil {
			return err
		}
		k, text := access.NewKey(args[1], g)
		if err := k.Check(); err != nil {
			return usagef("NAME: %v", err)
		}
		if err := access.WriteKeys(args[0], append(keys, k)); err != nil {
			return fmt.Errorf("FILE: %w", err)
		}
		if asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(struct {
				access.Key
				Text string `json:"key"`
			}{k, text})
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), text)
		return err
	}
	return c
}

func keysListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list FILE",
		Short:   "List the keys of a file, without the keys themselves",
		Example: "  millrace keys list keys.yaml\n  millrace keys list keys.yaml --json",
		Args:    wrongUsage(cobra.ExactArgs(1)),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		keys, err := keysOf(args[0], false)
		if err != nil {
			return err
		}
		if asJSON {
			if keys == nil {
				keys = []access.Key{}
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(keys)
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tID\tROLES\tMODELS\tQUOTAS\tEXPIRES")
		for _, k := range keys {
			fmt.Fprintf(w, "%s\t%s\t%s\n", k.Name, k.ID, grantColumns(k.Grant))
		}
		return w.Flush()
	}
	return c
}

func keysRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke FILE NAME|ID",
		Short:   "Remove the keys of a name, or the key of an id",
		Example: "  millrace keys revoke keys.yaml camera-1",
		Args:    wrongUsage(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			unlock, err := access.Lock(args[0])
			if err != nil {
				return fmt.Errorf("FILE: %w", err)
			}
			defer unlock()
			keys, err := keysOf(args[0], false)
			if err != nil {
				return err
			}
			kept, removed := access.WithoutKey(keys, args[1])
			if removed == 0 {
				return fmt.Errorf("%s has no key with the name or id %q", args[0], args[1])
			}
			if err := access.WriteKeys(args[0], kept); err != nil {
				return fmt.Errorf("FILE: %w", err)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d revoked\n", removed)
			return err
		},
	}
}

// grantFlags are the flags for the rights of a key or a user.
type grantFlags struct {
	roles, models, quotas []string
	validity              time.Duration
}

func (g *grantFlags) define(c *cobra.Command, what string) {
	c.Flags().StringSliceVar(&g.roles, "role", []string{role.Infer.String()},
		"a role: "+strings.Join(role.Names(), ", ")+"; may be repeated")
	c.Flags().StringSliceVar(&g.models, "model", nil,
		"the name of a model that it may use, or a pattern such as door-*; may be repeated [all]")
	c.Flags().StringSliceVar(&g.quotas, "quota", nil, "NAME=N in place of the setting quotas.NAME, such as "+
		"requests=50, which is a second's; 0 = any number; may be repeated [those of the settings]")
	c.Flags().DurationVar(&g.validity, "expires", 0, "how long the "+what+" is valid, such as 720h [for ever]")
}

// grant returns the rights set by the flags.
func (g *grantFlags) grant(now time.Time) (out access.Grant, err error) {
	roles, err := role.Parse(g.roles)
	if err == nil && roles == 0 {
		err = fmt.Errorf("is empty: want some of %s", strings.Join(role.Names(), ", "))
	}
	if err != nil {
		return out, usagef("--role: %v", err)
	}
	if err := access.CheckPatterns(g.models); err != nil {
		return out, usagef("--model: %v", err)
	}
	if g.validity < 0 {
		return out, usagef("--expires: is %v: want a time from now on, such as 720h", g.validity)
	}
	quotas, err := quotasOf(g.quotas)
	if err != nil {
		return out, usagef("--quota: %v", err)
	}
	out = access.Grant{Roles: roles.Names(), Models: g.models, Quotas: quotas}
	if g.validity > 0 {
		out.Expires = now.Add(g.validity).UTC().Truncate(time.Second)
	}
	return out, nil
}

// quotasOf reads quotas of the form NAME=N.
func quotasOf(texts []string) (map[string]float64, error) {
	out := map[string]float64{}
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil && name == stream.QuotaBytes.String() {
			var size int64
			size, err = setting.ParseSize(value)
			n = float64(size)
		}
		if err != nil {
			return nil, fmt.Errorf("%.140q is not a quota: want NAME=N, such as requests=50", text)
		}
		out[name] = n
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, access.CheckQuotas(out)
}

// grantColumns returns the columns of a table: roles, models, quotas, expiry.
func grantColumns(g access.Grant) string {
	models, quotas, until := "all", []string{}, "never"
	for _, name := range slices.Sorted(maps.Keys(g.Quotas)) {
		quotas = append(quotas, name+"="+strconv.FormatFloat(g.Quotas[name], 'f', -1, 64))
	}
	if len(g.Models) > 0 {
		models = strings.Join(g.Models, ",")
	}
	if !g.Expires.IsZero() {
		until = g.Expires.Format(time.RFC3339)
	}
	return strings.Join(g.Roles, ",") + "\t" + models + "\t" + cmp.Or(strings.Join(quotas, ","), "default") + "\t" +
		until
}
