package config

import (
	"errors"
	"net/url"

	"millrace/stream/coded"
)

// NATS names the NATS servers that keep the records of tasks for several servers and consumers.
type NATS struct {
	Servers     []string `yaml:"nats" example:"nats://10.0.0.5:4222" unset:"the server keeps the records in data" advanced:"yes" help:"NATS servers with JetStream that keep the records of tasks; the servers and consumers of one NATS share the folder data (docs/tasks.md). tls:// in place of nats:// requires encryption"`
	User        string   `yaml:"nats_user" advanced:"yes" help:"user of the NATS servers"`
	Password    string   `yaml:"nats_password" secret:"yes" example:"file:/run/secrets/nats" advanced:"yes" help:"password of nats_user, or file:PATH"`
	Credentials string   `yaml:"nats_credentials" path:"file" example:"millrace.creds" advanced:"yes" help:"credentials file of the NATS servers, with a JWT and a seed"`
	CA          string   `yaml:"nats_ca" path:"file" example:"nats.pem" unset:"the authorities of this machine" advanced:"yes" help:"PEM file with the authorities of the certificates of the NATS servers"`
}

// validate returns the errors of the settings for a server with the folder data.
func (n NATS) validate(data string) error {
	bad := func(field, text string) error { return coded.Errorf(coded.InvalidArgument, field, "%s", text) }
	if len(n.Servers) == 0 {
		for field, v := range map[string]string{"nats_user": n.User, "nats_password": n.Password,
			"nats_credentials": n.Credentials, "nats_ca": n.CA} {
			if v != "" {
				return bad(field, "is set without nats")
			}
		}
		return nil
	}
	var errs []error
	for _, s := range n.Servers {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" || u.Path != "" ||
			u.RawQuery != "":
			errs = append(errs, bad("nats",
				"an entry is no address such as nats://10.0.0.5:4222 or tls://nats.example.org"))
		case u.User != nil:
			errs = append(errs, bad("nats",
				"an entry has a user: set nats_user and nats_password, or nats_credentials"))
		}
	}
	if data == "" {
		errs = append(errs, bad("nats",
			"needs data: a folder that the servers and consumers of the NATS servers share"))
	}
	if (n.User == "") != (n.Password == "") {
		errs = append(errs, bad("nats_user", "and nats_password belong together"))
	}
	return errors.Join(errs...)
}
