// Dextest is an OpenID provider for tests: dex, in memory, at a free port of this machine.
//
// Dextest prints the URL of the issuer, and rotates the issuer's keys for each line "rotate" on standard input; at
// the end of the input dextest exits. The users eva and max have the password "secret" and get tokens by the grant
// password for the clients millrace and other; both clients have the secret "client".
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	gosundheit "github.com/AppsFlyer/go-sundheit"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/oauth2"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/server/tokens"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store := memory.New(logger)
	if err := fill(ctx, store); err != nil {
		return err
	}
	const valid = time.Hour
	open := func() (signer.Signer, error) {
		c := signer.LocalConfig{KeysRotationPeriod: "1h"}
		return c.Open(ctx, store, valid, time.Now, logger)
	}
	signs, err := open()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := "http://" + l.Addr().String() + "/dex"
	refresh, err := tokens.NewRefreshTokenPolicy(logger, false, "", "", "")
	if err != nil {
		return err
	}
	dex, err := server.NewServer(ctx, server.Config{
		Issuer: issuer, Storage: store, Signer: signs, IDTokensValidFor: valid, PasswordConnector: "local",
		RefreshTokenPolicy: refresh,
		AllowedGrantTypes:  []string{oauth2.GrantTypePassword}, Logger: logger,
		PrometheusRegistry: prometheus.NewRegistry(), HealthChecker: gosundheit.New(),
	})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(l, dex) }()
	fmt.Println(issuer)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	for {
		select {
		case err := <-failed:
			return err
		case line, more := <-lines:
			if !more {
				return nil
			}
			if line != "rotate" {
				return fmt.Errorf("%q is unknown", line)
			}
			if err := rotate(ctx, store, open); err != nil {
				return err
			}
			fmt.Println("rotated")
		}
	}
}

func fill(ctx context.Context, store storage.Storage) error {
	for _, id := range []string{"millrace", "other"} {
		if err := store.CreateClient(ctx, storage.Client{ID: id, Secret: "client", Name: id}); err != nil {
			return err
		}
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.DefaultCost)
	if err != nil {
		return err
	}
	for name, groups := range map[string][]string{"eva": {"staff", "millrace:infer", "millrace:watch"},
		"max": {"staff"}} {
		if err := store.CreatePassword(ctx, storage.Password{Email: name + "@example.org", Hash: hash, Username: name,
			UserID: "id-" + name, Groups: groups}); err != nil {
			return err
		}
	}
	return store.CreateConnector(ctx, storage.Connector{ID: "local", Type: "local", Name: "local"})
}

// rotate makes dex rotate its keys, as after the end of the keys' time.
func rotate(ctx context.Context, store storage.Storage, open func() (signer.Signer, error)) error {
	err := store.UpdateKeys(ctx, func(k storage.Keys) (storage.Keys, error) {
		k.NextRotation = time.Now().Add(-time.Second)
		return k, nil
	})
	if err != nil {
		return err
	}
	s, err := open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.Start(ctx)
	return nil
}
