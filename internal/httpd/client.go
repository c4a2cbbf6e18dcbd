package httpd

import (
	"github.com/gofiber/fiber/v2"

	"millrace/stream/coded"
)

// Client is the client of a request.
type Client interface {
	// OnEnd calls end once when the credentials of the client end. stop must be called when the reply
	// has ended.
	OnEnd(end func(error)) (stop func())
	// Err returns an error when the credentials of the client are no longer valid.
	Err() error
}

type clientKey struct{}

// SetClient sets the client of a request.
func SetClient(c *fiber.Ctx, of Client) { c.Locals(clientKey{}, of) }

// ClientOf returns the client of a request; nil without SetClient.
func ClientOf(c *fiber.Ctx) Client { of, _ := c.Locals(clientKey{}).(Client); return of }

// WWWAuthenticate says how a client authenticates (RFC 9110, section 11.6.1; RFC 6750).
const WWWAuthenticate = `Bearer realm="millrace"`

// stillValid returns an error when the credentials of the client of a request are no longer valid.
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

// onEnd returns OnEnd of the client of a request, for a reply that lasts longer than the handler.
func onEnd(c *fiber.Ctx) func(end func(error)) (stop func()) {
	of := ClientOf(c)
	if of == nil {
		return func(func(error)) func() { return func() {} }
	}
	return of.OnEnd
}
