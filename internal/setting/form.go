package setting

import (
	"fmt"
	"net"
	"strings"

	"millrace/internal/accept"
)

// forms has the checks of the tag form.
var forms = map[string]func(string) error{"name": checkName, "address": checkAddress, "socket": checkSocket,
	"route": checkRoute}

// checkName allows names that are safe in paths, labels and file names.
func checkName(s string) error {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	if s == "" || len(s) > 128 || s[0] == '.' || s[0] == '-' || strings.ContainsFunc(s, odd) {
		return fmt.Errorf("%.140q is not a name: want 1 to 128 letters, digits, dots, dashes or underscores", s)
	}
	return nil
}

// Off as an address means not to listen.
const Off = "off"

func checkAddress(s string) error {
	if s == Off {
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%.140q is not an address: want HOST:PORT, such as 127.0.0.1:8000, or off", s)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%.140q has no port between 0 and 65535", s)
	}
	return nil
}

// checkSocket is checkAddress, and allows unix sockets.
func checkSocket(s string) error {
	if path, is := accept.SocketPath(s); is {
		return accept.CheckSocketPath(path)
	}
	if err := checkAddress(s); err != nil {
		return fmt.Errorf("%w; or unix:/PATH for a unix socket", err)
	}
	return nil
}

// checkRoute allows a path of a URL without parameters.
func checkRoute(s string) error {
	odd := func(r rune) bool { return r < '!' || r > '~' || strings.ContainsRune("?#%:*+(){}\"\\", r) }
	if !strings.HasPrefix(s, "/") || strings.Contains(s, "//") || len(s) > 128 || strings.ContainsFunc(s, odd) {
		return fmt.Errorf("%.140q is not a route: want a path such as /metrics", s)
	}
	return nil
}
