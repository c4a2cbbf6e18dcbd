package server

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/config"
	"millrace/internal/inferencepb"
	"millrace/internal/testbuild"
)

// dex is a running OpenID provider of ingest/access/dextest.
type dex struct {
	issuer  string
	orders  io.Writer
	answers *bufio.Scanner
}

func startDex(t *testing.T) *dex {
	t.Helper()
	c := exec.Command(testbuild.Peer(t, "dex"))
	in, out := must(c.StdinPipe()), must(c.StdoutPipe())
	if testing.Verbose() {
		c.Stderr = os.Stderr
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // dex stops when its input closes
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
	d := &dex{orders: in, answers: bufio.NewScanner(out)}
	if !d.answers.Scan() {
		t.Fatal("dex did not start")
	}
	d.issuer = d.answers.Text()
	return d
}

// token returns the user's token for a client, obtained by name and password.
func (d *dex) token(t *testing.T, user, client string) string {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), "POST", d.issuer+"/token", strings.NewReader(url.Values{
		"grant_type": {"password"}, "username": {user + "@example.org"}, "password": {"secret"},
		"scope": {"openid email profile groups"},
	}.Encode())))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(client, "client")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var answer struct {
		Token string `json:"id_token"`
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || answer.Token == "" {
		t.Fatalf("%s: %v", r.Status, err)
	}
	return answer.Token
}

// rotate has the provider sign with a new key.
func (d *dex) rotate(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(d.orders, "rotate\n"); err != nil || !d.answers.Scan() ||
		d.answers.Text() != "rotated" {
		t.Fatal("dex did not rotate its keys")
	}
}

// TestDex: tokens of dex are credentials over REST, WebSocket and gRPC, with the roles of their groups; tokens for
// another audience are refused; the server finds the provider's new keys.
func TestDex(t *testing.T) {
	d := startDex(t)
	s := startKeyed(t, func(c *Config) {
		c.Auth = config.Auth{OIDC: config.OIDC{Issuer: d.issuer, Audience: "millrace", UserClaim: "name",
			RolesClaim: "groups"}}
	}).Server
	conn := must(grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials())))
	t.Cleanup(func() { conn.Close() })
	stub := inferencepb.NewGRPCInferenceServiceClient(conn)
	// wants checks the rights of a token over each protocol: read a model for infer, the statistics for watch, and
	// load for manage.
	wants := func(what, token string, http [3]int, grpc [3]codes.Code, stream int) {
		t.Helper()
		for i, c := range [3][2]string{{"GET", "/v2/models/echo"}, {"GET", "/v2/models/stats"},
			{"POST", "/v2/repository/models/echo/load"}} {
			if got := statusWith(t, s, c[0], c[1], token); got != http[i] {
				t.Errorf("%s: %s: %d, want %d", what, c[1], got, http[i])
			}
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		for i, call := range [3]func() error{
			func() error {
				_, err := stub.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: "echo"})
				return err
			},
			func() error { _, err := stub.ModelStatistics(ctx, &inferencepb.ModelStatisticsRequest{}); return err },
			func() error {
				_, err := stub.RepositoryModelLoad(ctx, &inferencepb.RepositoryModelLoadRequest{ModelName: "echo"})
				return err
			},
		} {
			if got := status.Code(call()); got != grpc[i] {
				t.Errorf("%s: call %d: %v, want %v", what, i, got, grpc[i])
			}
		}
		ws, r, _ := websocket.DefaultDialer.Dial("ws://"+s.Addr("http")+
			"/v2/models/echo/stream?codec=opaque&outputs=none",
			map[string][]string{"Authorization": {"Bearer " + token}})
		if r == nil || r.StatusCode != stream {
			t.Errorf("%s: WebSocket: %v, want %d", what, r, stream)
		}
		if ws != nil {
			ws.Close()
		}
	}
	allowed := func(what, token string) {
		t.Helper()
		wants(what, token, [3]int{200, 200, 403}, [3]codes.Code{codes.OK, codes.OK, codes.PermissionDenied}, 101)
	}
	refused := func(what, token string) {
		t.Helper()
		wants(what, token, [3]int{401, 401, 401}, [3]codes.Code{codes.Unauthenticated, codes.Unauthenticated,
			codes.Unauthenticated}, 401)
	}
	eva := d.token(t, "eva", "millrace")
	allowed("a token", eva)
	wants("one without roles", d.token(t, "max", "millrace"), [3]int{403, 403, 403},
		[3]codes.Code{codes.PermissionDenied, codes.PermissionDenied, codes.PermissionDenied}, 403)
	refused("one for another audience", d.token(t, "eva", "other"))
	parts := strings.Split(eva, ".")
	d.rotate(t)
	again := d.token(t, "eva", "millrace")
	if strings.Split(again, ".")[0] == parts[0] {
		t.Error("dex signs with the same key")
	}
	allowed("one of a new key", again)
	allowed("one of the key before", eva)
	// Last, because each token makes the server request new keys, and the number of these requests is limited.
	refused("one with the signature of another",
		strings.Join(append(parts[:2:2], strings.Split(d.token(t, "max", "millrace"), ".")[2]), "."))
}

// statusWith returns the status of a request with a token.
func statusWith(t *testing.T, s *Server, method, path, token string) int {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr("http")+path, nil))
	req.Header.Set("Authorization", "Bearer "+token)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}
