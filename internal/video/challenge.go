package video

import (
	"crypto/md5" //nolint:gosec // digest authentication of cameras
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/url"
	"regexp"
	"strings"
)

// challenge is how an HTTP server asks for user and password (RFC 7616, RFC 7617).
type challenge struct {
	scheme               string // "", "basic" or "digest"
	realm, nonce, opaque string
	algorithm, qop       string
	count                int
	hash                 func() hash.Hash
}

var challengeValue = regexp.MustCompile(`([A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))`)

// read parses the challenges of a response, and reports whether any challenge can be answered. Digest is preferred.
func (c *challenge) read(headers []string) bool {
	*c = challenge{}
	for _, h := range headers {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(h), " ")
		switch scheme = strings.ToLower(scheme); {
		case scheme == "basic" && c.scheme == "":
			c.scheme = scheme
		case scheme == "digest":
			d := challenge{scheme: scheme, hash: md5.New}
			for _, f := range challengeValue.FindAllStringSubmatch(rest, -1) {
				v := f[2] + f[3]
				switch strings.ToLower(f[1]) {
				case "realm":
					d.realm = v
				case "nonce":
					d.nonce = v
				case "opaque":
					d.opaque = v
				case "algorithm":
					d.algorithm = v
				case "qop":
					d.qop = v
				}
			}
			switch strings.ToUpper(d.algorithm) {
			case "", "MD5":
			case "SHA-256":
				d.hash = sha256.New
			default:
				continue
			}
			if d.qop != "" {
				has := false
				for q := range strings.SplitSeq(d.qop, ",") {
					has = has || strings.TrimSpace(q) == "auth"
				}
				if !has {
					continue
				}
				d.qop = "auth"
			}
			*c = d
		}
	}
	return c.scheme != ""
}

// answer returns the Authorization header of a request, "" where the server has sent no challenge.
func (c *challenge) answer(u *url.Userinfo, method, uri string) string {
	password, _ := u.Password()
	name := u.Username()
	switch c.scheme {
	case "basic":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
	case "digest":
	default:
		return ""
	}
	sum := func(s string) string {
		h := c.hash()
		_, _ = h.Write([]byte(s))
		return hex.EncodeToString(h.Sum(nil))
	}
	a1, a2 := sum(name+":"+c.realm+":"+password), sum(method+":"+uri)
	quote := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
	header := fmt.Sprintf("Digest username=%s, realm=\"%s\", nonce=\"%s\", uri=%s", quote(name), c.realm, c.nonce,
		quote(uri))
	if c.qop == "" {
		header += `, response="` + sum(a1+":"+c.nonce+":"+a2) + `"`
	} else {
		c.count++
		nc, own := fmt.Sprintf("%08x", c.count), rand.Text()
		header += fmt.Sprintf(`, qop=auth, nc=%s, cnonce="%s", response="%s"`, nc, own,
			sum(strings.Join([]string{a1, c.nonce, nc, own, "auth", a2}, ":")))
	}
	if c.algorithm != "" {
		header += ", algorithm=" + c.algorithm
	}
	if c.opaque != "" {
		header += `, opaque="` + c.opaque + `"`
	}
	return header
}
