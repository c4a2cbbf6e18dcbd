package httpd

import (
	"github.com/gofiber/fiber/v2"

	"millrace/stream/coded"
)

// Client is the client of a request, as the handler in front of the routes has found it.
type Client interface {
	// OnEnd calls end once when the credentials of the client are not valid any more. stop says that the client has ended by itself.
	OnEnd(end func(error)) (stop func())
	// Err returns why the credentials of the client are not valid any more, or nil.
	Err() error
}

type clientKey struct{}

// SetClient sets the client of a request.
func SetClient(c *fiber.Ctx, of Client) { c.Locals(clientKey{}, of) }

// ClientOf returns the client of a request; nil when none was set.
func ClientOf(c *fiber.Ctx) Client { of, _ := c.Locals(clientKey{}).(Client); return of }

// WWWAuthenticate says how a client authenticates (RFC 9110, section 11.6.1; RFC 6750).
const WWWAuthenticate = `Bearer realm="millrace"`

// stillValid returns why the credentials of the client of a request are not valid any more, or nil.
func stillValid(c *fiber.Ctx) error {
	of := ClientOf(c)
	if of == nil {
		return nil
	}
	err := of.Err()
	if err != nil && coded.CodeOf(err) == coded.Unauthenticated {
		c.Set(fiber.HeaderWWWAuthenticate, WWWAuthenticate)
	}
	return err
}

// onEnd returns OnEnd of the client of a request, for a reply that goes on after its handler.
func onEnd(c *fiber.Ctx) func(end func(error)) (stop func()) {
	of := ClientOf(c)
	if of == nil {
		return func(func(error)) func() { return func() {} }
	}
	return of.OnEnd
}
