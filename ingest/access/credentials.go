package access

import (
	"crypto/x509"
	"net"
	"strings"
)

// Credentials are the keys, tokens, certificates and addresses of a call. The zero value has none.
type Credentials struct {
	Keys         []string            // keys and tokens, by order of preference
	Session      string              // the value of the session cookie; "" = none
	Certificates []*x509.Certificate // the client's certificate first, then the issuers
	Conn         net.Conn            // nil = no connection
	// the address of the client, without a connection; nil = the program that embeds the server
	Remote net.Addr
	// the last line of X-Forwarded-For; ignored unless the connection is of a trusted proxy
	Forwarded string
}

// Key adds a key or a token, unless it is "".
func (c *Credentials) Key(key string) {
	if key != "" {
		c.Keys = append(c.Keys, key)
	}
}

// Outcome is the result of the check of a call's credentials.
type Outcome uint8

// The outcomes.
const (
	Allowed Outcome = iota
	Missing
	Wrong
	Expired
	Denied     // the client has not the role, or may not use the model
	TooMany    // attempts to log in, of an address or at once
	NoOutcomes // the number of outcomes
)

// KeyName is the name of the header, cookie, query option and metadata of a key.
const KeyName = "api_key"

// Bearer returns the key or token in the value of a header Authorization (RFC 6750, section 2.1), or "".
func Bearer(value string) string {
	scheme, key, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}
