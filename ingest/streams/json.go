package streams

import (
	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
	"millrace/stream"
)

// maxBody is the largest body of a request.
const maxBody = 64 << 10

// body reads the JSON object in a request's body.
func (a *Adapter) body(c *fiber.Ctx) (map[string]any, error) {
	text, err := a.http.ReadSmall(c, maxBody)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, stream.Errorf(stream.InvalidArgument, "", "the body is empty: want a JSON object")
	}
	var v any
	if err := httpd.StrictJSON(text, &v); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "", "the body is not a JSON object: %w", err)
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, stream.Errorf(stream.InvalidArgument, "", "the body is not a JSON object: want {...}")
	}
	return object, nil
}
