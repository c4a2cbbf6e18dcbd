package video

import (
	"net/url"
	"regexp"
	"sort"
	"strings"
)

const hidden = "***"

var (
	// userInfo takes everything up to the last @ before a blank or quote, even an @ after a slash, # or ?: an
	// unencoded password may contain these characters.
	userInfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"']*@`)
	// secretValue matches name=value where the name suggests a secret.
	secretValue = regexp.MustCompile(`(?i)([?&;#][^=&;#\s"']*(?:` + secretWords + `)[^=&;#\s"']*=)[^&;#\s"']*`)
	secretName  = regexp.MustCompile(`(?i)` + secretWords)
	// secretOption matches a program's option with a name that suggests a secret, and headers, including the value.
	secretOption = regexp.MustCompile(`(?i)(\s--?[\w-]*(?:` + secretWords +
		`|header)[\w-]*(?:=|\s+))(?:"[^"]*"|'[^']*'|[^\s"']+)`)
	authHeader = regexp.MustCompile(`(?i)(authorization:\s*)[^\r\n]*`)
)

const secretWords = `token|secret|passw|passphrase|pwd|auth|sig|key|credential|session|jwt|user|login|` +
	`hdnts|hdnea|policy`

// Redact hides user names, passwords, and the values of query parameters that look like secrets, in every address in
// the text: a single address, or a whole log. Of an unparsable address only the scheme remains.
func Redact(text string) string {
	if word, _, ok := cutScheme(text); ok && isNetwork(word) && protocols[word] != nil {
		if _, _, err := parseSource(text); err != nil {
			return word + "://" + hidden
		}
	}
	if word, _, ok := cutScheme(text); ok && word == SchemeExec {
		text = secretOption.ReplaceAllString(text, "${1}"+hidden)
	}
	text = userInfo.ReplaceAllString(text, "${1}"+hidden+"@")
	text = secretValue.ReplaceAllString(text, "${1}"+hidden)
	return authHeader.ReplaceAllString(text, "${1}"+hidden)
}

// Redacted reports whether address is an output of Redact with a hidden part.
func Redacted(address string) bool {
	return strings.Contains(address, "://"+hidden) || strings.Contains(address, "="+hidden)
}

// redactor also hides the secrets of one address outside addresses, as in "401 for user admin:hunter2".
type redactor struct {
	replace     *strings.Replacer
	alias, name string // a placeholder address, and the real address
}

// withAddress returns a redactor that also replaces the placeholder in ffmpeg's messages by the address.
func (r redactor) withAddress(alias, name string) redactor {
	r.alias, r.name = alias, name
	return r
}

func newRedactor(raw string) redactor {
	var secrets []string
	add := func(s string) {
		if len(s) >= 4 { // shorter secrets occur in ordinary words of messages
			secrets = append(secrets, s)
		}
	}
	if i := strings.Index(raw, "://"); i > 0 {
		rest := raw[i+3:]
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			add(rest[:at])
			if _, password, ok := strings.Cut(rest[:at], ":"); ok {
				add(password)
			}
		}
	}
	if u, err := url.Parse(raw); err == nil && u.Host != "" {
		if u.User != nil {
			add(u.User.String())
			if password, ok := u.User.Password(); ok {
				add(password)
				add(url.QueryEscape(password))
			}
		}
		for name, values := range u.Query() {
			if !secretName.MatchString(name) {
				continue
			}
			for _, v := range values {
				add(v)
				add(url.QueryEscape(v))
			}
		}
	}
	// Longer secrets go first: a secret may contain another secret.
	sort.Slice(secrets, func(i, j int) bool { return len(secrets[i]) > len(secrets[j]) })
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, hidden)
	}
	return redactor{replace: strings.NewReplacer(pairs...)}
}

func (r redactor) text(s string) string {
	if r.alias != "" {
		s = strings.ReplaceAll(s, r.alias, r.name)
	}
	// Redact first: Redact needs whole addresses.
	return r.replace.Replace(Redact(s))
}
