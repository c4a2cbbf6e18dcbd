package server

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/access"
	"millrace/internal/httpd"
	"millrace/internal/openapi"
	"millrace/internal/role"
	"millrace/stream"
)

// who is a principal as clients are told of it.
type who struct {
	User   string   `json:"user_id"`
	Roles  []string `json:"roles"`
	Models []string `json:"models,omitempty"` // the only ones that it may use
}

func whoOf(p *access.Principal) who { return who{p.Name, p.Roles.Names(), p.Models} }

// loginRoutes describes the routes of a server whose clients need credentials. GET is for browsers and clients of
// other systems: it leads to the root.
var loginRoutes = []openapi.Route{
	{Method: "GET", Path: "/login", Role: role.Open, Tag: tagServer,
		Summary: "Begin a session with a key, which the request must have", Status: http.StatusTemporaryRedirect},
	{Method: "POST", Path: "/login", Role: role.Open, Tag: tagServer,
		Summary: "Begin a session with a key or a token, which the request must have in a header", Answer: who{}},
	{Method: "GET", Path: "/session_login", Role: role.Open, Tag: tagServer,
		Summary: "Begin a session with a name and a password, sent as HTTP Basic",
		Status:  http.StatusTemporaryRedirect},
	{Method: "POST", Path: "/session_login", Role: role.Open, Tag: tagServer,
		Summary: "Begin a session with a name and a password, sent as HTTP Basic", Answer: who{}},
	{Method: "GET", Path: "/logout", Role: role.Open, Tag: tagServer, Summary: "End the session",
		Status: http.StatusTemporaryRedirect},
	{Method: "POST", Path: "/logout", Role: role.Open, Tag: tagServer, Summary: "End the session",
		Status: http.StatusNoContent},
	{Method: "GET", Path: "/session_logout", Role: role.Open, Tag: tagServer, Summary: "End the session",
		Status: http.StatusTemporaryRedirect},
	{Method: "POST", Path: "/session_logout", Role: role.Open, Tag: tagServer, Summary: "End the session",
		Status: http.StatusNoContent},
	{Method: "GET", Path: "/session_status", Role: role.Open, Tag: tagServer,
		Summary: "Who the client is by its credentials", Answer: who{}},
}

// serveLogins registers the routes for sessions.
func (s *Server) serveLogins(app *fiber.App) {
	if !s.access.Required() {
		return
	}
	app.Get("/login", s.loginWithKey)
	app.Post("/login", s.loginWithKey)
	app.Get("/session_login", s.loginWithPassword)
	app.Post("/session_login", s.loginWithPassword)
	for _, path := range []string{"/logout", "/session_logout"} {
		app.Get(path, s.logout)
		app.Post(path, s.logout)
	}
	app.Get("/session_status", func(c *fiber.Ctx) error {
		p, err := s.access.Identify(c.UserContext(), s.credentialsOf(c, s.rootAccess().KeyInQuery))
		if err != nil {
			return s.refuseCredentials(c, err)
		}
		c.Set(fiber.HeaderCacheControl, "no-store")
		return c.JSON(whoOf(p))
	})
}

// attempt counts an attempt to log in, and returns an error if its address has made too many, or the page of another
// site makes it.
func (s *Server) attempt(c *fiber.Ctx) error {
	if err := fromElsewhere(c); err != nil {
		return err
	}
	return s.access.Attempt(s.clientAddress(c))
}

func (s *Server) loginWithKey(c *fiber.Ctx) error {
	if err := s.attempt(c); err != nil {
		return err
	}
	of := s.credentialsOf(c, c.Method() == fiber.MethodGet || s.rootAccess().KeyInQuery)
	// a session cannot prolong itself, and a certificate comes with each connection
	of.Session, of.Certificates = "", nil
	p, err := s.access.Identify(c.UserContext(), of)
	if err != nil {
		return s.refuseCredentials(c, err)
	}
	return s.begin(c, p)
}

func (s *Server) loginWithPassword(c *fiber.Ctx) error {
	if !s.access.Passwords() {
		return stream.Errorf(stream.Unsupported, "",
			"nobody can log in with a password here: use /login with a key (auth.users and auth.module are not set)")
	}
	if err := s.attempt(c); err != nil {
		return err
	}
	name, password, ok := basic(c.Get(fiber.HeaderAuthorization))
	var p *access.Principal
	if ok {
		var err error
		if p, err = s.password(c, name, password); err != nil {
			return err
		}
	}
	if p != nil {
		return s.begin(c, p)
	}
	s.access.Count(access.Wrong)
	c.Locals(attemptKey{}, name)
	s.log.Warn("failed to authenticate a user", "user", name)
	if c.Method() == fiber.MethodGet { // a page that sends POST asks the user itself
		c.Set(fiber.HeaderWWWAuthenticate, `Basic realm="millrace", charset="UTF-8"`)
	} else {
		c.Set(fiber.HeaderWWWAuthenticate, httpd.WWWAuthenticate)
	}
	err := stream.Errorf(stream.Unauthenticated, "", "the name or the password is wrong: send them as HTTP Basic")
	return c.Status(fiber.StatusUnauthorized).JSON(map[string]string{"detail": "Invalid credentials",
		"error": err.Error(), "code": string(stream.Unauthenticated)})
}

// password returns the principal with a name and a password, or nil. The client's connection does not give way to
// other connections during the check.
func (s *Server) password(c *fiber.Ctx, name, password string) (*access.Principal, error) {
	defer httpd.Busy(c.Context())()
	return s.access.Password(c.UserContext(), name, password)
}

// basic returns the name and the password of a header Authorization of HTTP Basic.
func basic(value string) (name, password string, ok bool) {
	scheme, text, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "basic") {
		return "", "", false
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(plain), ":")
}

// begin begins a session.
func (s *Server) begin(c *fiber.Ctx, p *access.Principal) error {
	c.Locals(actorKey{}, p)
	s.access.End(c.Cookies(sessionName)) // that the browser had before
	text, err := s.access.Begin(p)
	if err != nil {
		return err
	}
	s.log.Info("Created session", "user", p.Name)
	s.setSession(c, text, int(s.cfg.Auth.Sessions/time.Second))
	if c.Method() == fiber.MethodPost {
		return c.JSON(whoOf(p))
	}
	return httpd.Redirect(c, "/", fiber.StatusTemporaryRedirect)
}

// fromElsewhere returns an error if a browser says that the page of another site has sent the request, such as a link
// or a picture of it with GET. Requests with POST are checked by their Origin. Sec-Fetch-Site: W3C Fetch Metadata
// Request Headers.
func fromElsewhere(c *fiber.Ctx) error {
	if c.Method() == fiber.MethodPost {
		return nil
	}
	switch c.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return stream.Errorf(stream.PermissionDenied, "Sec-Fetch-Site",
			"the page of another site cannot log in or out here: open %s yourself", c.Path())
	}
	return nil
}

func (s *Server) logout(c *fiber.Ctx) error {
	if err := fromElsewhere(c); err != nil {
		return err
	}
	if p := s.access.End(c.Cookies(sessionName)); p != nil {
		c.Locals(actorKey{}, p)
		s.log.Info("Deleted session", "user", p.Name)
	}
	s.setSession(c, "", -1)
	if c.Method() == fiber.MethodPost {
		return c.SendStatus(fiber.StatusNoContent)
	}
	return httpd.Redirect(c, "/", fiber.StatusTemporaryRedirect)
}

// setSession sets the cookie; age is in seconds. It is for encrypted connections only where the client's is
// encrypted.
func (s *Server) setSession(c *fiber.Ctx, value string, age int) {
	cookie := &fiber.Cookie{Name: sessionName, Value: value, MaxAge: age, Path: "/", HTTPOnly: true,
		SameSite: fiber.CookieSameSiteLaxMode, Secure: s.http.Encrypted(c)}
	if age < 0 {
		cookie.Expires = time.Unix(1, 0) // a Max-Age below 0 is not written
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Cookie(cookie)
}

// keyHeader returns access.KeyName if clients need a key.
func (s *Server) keyHeader() string {
	if !s.access.Required() {
		return ""
	}
	return access.KeyName
}
